"""The verbs of a study, from its design to its verdict; see also `folder_verbs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from paribus.cli.limits import Limits
from paribus.cli.options import (
    HERE,
    PLAIN,
    Answer,
    Eager,
    Folder,
    Json,
    Overrides,
    ResultsPath,
    StackSize,
    StudyName,
    Trust,
    Where,
    Workers,
    console,
    print_json,
    show,
    show_path,
)
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from paribus.analysis import Analysis
    from paribus.decision import Verdict
    from paribus.results import Results
    from paribus.study import Study


def studies(*, json: Json = False) -> None:
    """List the studies that ship with paribus."""
    from paribus.cli import printed
    from paribus.study import shipped_studies

    found = shipped_studies()
    commissioned = [name for name in found if name.startswith("embedding-norm")]
    groups = {
        "first": ["quickstart"],
        "one idea each": [name for name in found if name not in ("quickstart", *commissioned)],
        "the commissioned question": commissioned,
    }
    if json:
        print_json(
            {
                name: {
                    "group": group,
                    "question": found[name].question,
                    "arms": list(found[name].arms),
                    "seeds": list(found[name].seeds),
                    "minutes_on_two_cores": printed.minutes(found[name]),
                    "downloads_text": found[name].format.downloads(found[name]),
                }
                for group, names in groups.items()
                for name in names
            }
        )
        return
    shown = {group: {name: found[name] for name in names} for group, names in groups.items()}
    show(*printed.shipped(shown))


def show_study(
    study: StudyName,
    *,
    parameters: Annotated[
        bool,
        Parameter(negative=(), help="Every parameter: how it starts, and what decays it."),
    ] = False,
    all_: Annotated[
        bool, Parameter(name="--all", negative=(), help="Every key, not those alone that are set.")
    ] = False,
    set_: Overrides = None,
    workers: Workers = None,
    where: Where = HERE,
    stack: StackSize = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Show what a study would do: arms, cost on this machine, specification."""
    loaded = _load(study, set_, trust, None if parameters else where)
    _require_stacked(loaded, "`paribus show`")
    from paribus.cli import printed

    if parameters:
        from paribus.engine.execution.workers.lifetime import ending_children
        from paribus.engine.training.parameters import parameter_rows, parameter_warnings

        with ending_children():  # models of own code are built here
            rows = {arm: parameter_rows(loaded, arm) for arm in loaded.arms}
            warnings = parameter_warnings(loaded)
        show(*printed.parameters(loaded, rows, warnings))
        return
    from paribus.engine.execution.timing.budgets import settled_budgets
    from paribus.engine.execution.timing.estimate import estimate

    loaded = settled_budgets(loaded, **where.chosen())
    cost = estimate(loaded, workers=workers, **where.chosen(), stack=stack)
    if json:
        spec = loaded.model_dump(mode="json")
        print_json({"digest": loaded.digest, "study": spec, "cost": cost.to_dict()})
        return
    show(*printed.study(loaded, cost, every=all_), *printed.design(loaded, cost.metrics))


def plan(
    study: StudyName,
    *,
    pilot: Annotated[
        Path | None, Parameter(help="A results folder whose spread to plan with.")
    ] = None,
    sd: Annotated[
        float | None,
        Parameter(help="SD of the paired differences of the primary endpoint, where known."),
    ] = None,
    workers: Workers = None,
    where: Where = HERE,
    stack: StackSize = None,
    set_: Overrides = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Say what a study costs here and what it can detect, before any run."""
    loaded = _load(study, set_, trust, where)
    _require_stacked(loaded, "`paribus plan`")
    from paribus.analysis import analyse, detectable, foreseen, planned_looks
    from paribus.cli import printed
    from paribus.engine.execution.timing.estimate import estimate
    from paribus.results import load_results

    earlier = analyse(load_results(pilot)) if pilot else None
    rows = detectable(loaded, pilot=earlier, sd=sd) if pilot or sd is not None else []
    cost = estimate(loaded, workers=workers, **where.chosen(), stack=stack)
    if json:
        sees = {"detectable": rows, "by_kept_studies": [] if rows else foreseen(loaded)}
        print_json(
            {"study": loaded.digest, "cost": cost.to_dict()}
            | {name: [row.to_dict() for row in of] for name, of in sees.items()}
        )
        return
    looks = planned_looks(loaded, max((row.sd for row in rows), default=None))
    show(printed.cost(loaded, cost), *printed.planned(loaded, looks))
    show(*printed.detectable(loaded, rows, cost.metrics))


def check(
    study: StudyName,
    *,
    where: Where = HERE,
    eager: Eager = False,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Try a study: all that `run` would refuse, and a step of every arm; nothing is left."""
    import tempfile

    loaded = _load(study, set_, trust, where)
    from paribus.cli import printed
    from paribus.study.trainer import STACKED
    from paribus.trainers import register as register_study

    options = {**where.chosen(), "eager": eager} if loaded.trainer == STACKED else {}
    with tempfile.TemporaryDirectory() as folder:
        register_study(loaded, Path(folder) / "results", **options)
    show(*printed.design(loaded, {}))
    show(
        f"{loaded.name}: {len(loaded.arms)} arms x {len(loaded.seeds)} seeds can be run"
        + (", and every arm was tried." if loaded.trainer == STACKED else "; its trainer was not.")
    )


def register(
    study: StudyName,
    *,
    results: ResultsPath = None,
    where: Where = HERE,
    eager: Eager = False,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Fix what would count before the first run: write registration.json."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import printed
    from paribus.study.trainer import STACKED
    from paribus.trainers import register as register_study

    options = {**where.chosen(), "eager": eager} if loaded.trainer == STACKED else {}
    path = register_study(loaded, results, **options)
    show(*printed.design(loaded, {}, warnings=True))
    show_path(f"registered: {path}")


def run(
    study: StudyName,
    *,
    results: ResultsPath = None,
    workers: Workers = None,
    where: Where = HERE,
    stack: StackSize = None,
    eager: Eager = False,
    log: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Trackers that follow the run, such as tensorboard."),
    ] = None,
    paper: Annotated[bool, Parameter(negative="--no-paper", help="Write the PDF too.")] = True,
    limits: Limits | None = None,
    answer: Answer = PLAIN,
    set_: Overrides = None,
    trust: Trust = False,
) -> int:
    """Train, evaluate, compare and report a study; continues an earlier run."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import printed
    from paribus.results import extended
    from paribus.trainers import results_folder

    staged = extended(loaded, results_folder(loaded, results))
    warnings = [*printed.design(staged, {}, warnings=True)]
    limits = limits or Limits()
    with limits.clock():
        done = _train(
            *(loaded, results, workers, where, stack, log or []),
            eager=eager,
            before=warnings,
            limits=limits,
        )
    return _finish(done, answer, paper=paper)


def analyse(folder: Folder, *, answer: Answer = PLAIN) -> int:
    """Test every contrast of a results folder; write analysis.json."""
    from paribus.cli import printed
    from paribus.results import load_results

    analysis, verdicts = _analyse(load_results(folder))
    if answer.verbose:
        show(*printed.chosen(analysis), *printed.summary(analysis, verdicts))
        show(*printed.sampled(analysis), *printed.tasks(analysis), *printed.contrasts(analysis))
    return _give(analysis, verdicts, answer)


def decide(
    folder: Annotated[
        Path | None, Parameter(help="The results folder of a study; --rows needs none.")
    ] = None,
    *,
    rows: Annotated[
        bool, Parameter(negative=(), help="Print the decision table too, row by row.")
    ] = False,
    answer: Answer = PLAIN,
) -> int:
    """Give the verdict on every arm of a results folder; write verdict.json."""
    from paribus.cli import printed
    from paribus.decision import shipped_rules
    from paribus.results import load_results

    if folder is None:
        if not rows:
            raise ParibusError("decide takes a results folder, or --rows for the rules alone")
        show(printed.truth(), *map(printed.rows_alone, shipped_rules().values()))
        return 0
    analysis, verdicts = _analyse(load_results(folder))
    if answer.verbose:
        show(*printed.verdicts(analysis.study, verdicts))
    if rows:
        show(printed.truth(), printed.rows_of(analysis, verdicts))
    return _give(analysis, verdicts, answer)


def null(
    study: StudyName,
    *,
    replicates: Annotated[int, Parameter(help="A/A studies, each with the study's seeds.")],
    results: ResultsPath = None,
    workers: Workers = None,
    where: Where = HERE,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Measure the error rates of a study's tests on A/A replicates of its baseline."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import printed
    from paribus.decision import calibrate
    from paribus.results.formats import write_json
    from paribus.study import null_study

    nulls = null_study(loaded, replicates)
    done = _train(nulls, results, workers, where, None)
    calibration = calibrate(done, pairs=len(loaded.seeds), plan=loaded.plan)
    write_json(done.path / "null.json", asdict(calibration))
    show(*printed.calibration(calibration))
    if loaded.tuning is not None:
        show(
            "Without the tuning: every arm has the values of the study file, so that what the "
            "choice of values adds is not in these rates (docs/tuning.md)."
        )
    show_path(f"null: {done.path / 'null.json'}")


def bench(
    study: StudyName = "quickstart",
    *,
    arm: Annotated[str | None, Parameter(help="Which arm; by default the baseline.")] = None,
    workers: Workers = None,
    where: Where = HERE,
    stack: Annotated[
        list[int] | None,
        Parameter(
            negative=(),
            consume_multiple=True,
            help="Seeds trained side by side in a worker, one or several sizes: --stack 1 4 16.",
        ),
    ] = None,
    steps: Annotated[
        int | None, Parameter(help="Steps to time, after a few to warm up; by default 25.")
    ] = None,
    json: Annotated[Path | None, Parameter(help="A file to write the same to, as JSON.")] = None,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Time training here: against the machine's ceiling, and where the time goes."""
    loaded = _load(study, set_, trust, where)
    _require_stacked(loaded, "`paribus bench`")
    from paribus.cli import printed
    from paribus.engine.execution.timing.bench import bench as bench_study
    from paribus.results.formats import write_json

    with console.status("timing"):
        found = bench_study(
            loaded, arm, workers=workers, **where.chosen(), stacks=stack, steps=steps
        )
    show(*printed.bench(found))
    if json is not None:
        write_json(json, found.to_dict())
        show_path(f"bench: {json}")


def report(
    folder: Folder,
    *,
    paper: Annotated[bool, Parameter(negative="--no-paper", help="Write the PDF too.")] = True,
    open_: Annotated[
        bool, Parameter(name="--open", negative=(), help="Show the page in the browser.")
    ] = False,
    answer: Answer = PLAIN,
) -> int:
    """Draw page and paper of a results folder again, from its records alone."""
    from paribus.results import load_results

    code = _finish(load_results(folder), answer, paper=paper)
    if open_:
        import webbrowser

        webbrowser.open((folder / "report.html").resolve().as_uri())
    return code


def _train(
    study: Study,
    results: Path | None,
    workers: int | None,
    where: Where,
    stack: int | None,
    log: Sequence[str] = (),
    *,
    eager: bool = False,
    before: Iterable[RenderableType] = (),
    limits: Limits | None = None,
) -> Results:
    """Run a study; `before` is printed once nothing refuses it any more."""
    from paribus.cli.progress import watching
    from paribus.study.trainer import STACKED
    from paribus.trainers import run as run_study

    if study.trainer != STACKED:  # a trainer of the user's own says itself how far it is
        if limits and limits.max_trials is not None:
            raise ParibusError(
                f"'{study.name}' is run by trainer '{study.trainer}', which counts its own trials; "
                "leave --max-trials out"
            )
        for part in before:
            console.print(part)
        return run_study(study, results)
    with watching(console, before) as watch:
        return run_study(
            study,
            results,
            workers=workers,
            **where.chosen(),
            stack=stack,
            eager=eager,
            watch=limits.counting(watch) if limits else watch,
            log=log,
        )


def _require_stacked(study: Study, what: str) -> None:
    from paribus.study.trainer import require_stacked

    require_stacked(study, what)


def _load(name: str, overrides: list[str] | None, trust: bool, where: Where | None) -> Study:
    """Return the study; its workers begin to import what they need, and this process after it.

    What is imported up here would be waited for before they begin: the rest is, in each verb.
    """
    from paribus.study import load_study, parse_override, require_trust
    from paribus.study.trainer import STACKED

    changes = dict(parse_override(text) for text in overrides or ())
    loaded = load_study(name, changes, trust=trust)
    require_trust(loaded)
    if where is not None and loaded.trainer == STACKED:
        where.warm_up()
    from paribus.decision import find_rule

    find_rule(loaded)  # a rule that is none is told at once
    return loaded


def _analyse(results: Results) -> tuple[Analysis, list[Verdict]]:
    """Analyse and decide; leaves analysis.json and verdict.json."""
    from paribus.results.store import answering

    with answering(results.path):
        return _judge(results)


def _judge(results: Results) -> tuple[Analysis, list[Verdict]]:
    from paribus.analysis import analyse as analyse_results
    from paribus.decision import decide as decide_analysis
    from paribus.decision import verdict_record
    from paribus.results.formats import write_json
    from paribus.results.store import secure

    if not results.finished:
        raise ParibusError(f"no trial in {results.path} is finished; run the study first")
    secure(results.path)
    analysis = analyse_results(results)
    verdicts = decide_analysis(analysis)
    results.require_current()
    write_json(results.path / "analysis.json", analysis.to_dict())
    write_json(results.path / "verdict.json", verdict_record(analysis.study, verdicts))
    return analysis, verdicts


def _finish(results: Results, answer: Answer, *, paper: bool) -> int:
    """Analyse, decide, write page and paper, print the card; returns the exit code."""
    from paribus.cli import printed
    from paribus.cli.progress import doing
    from paribus.files import sweep
    from paribus.report import draw, prepare, write_paper, write_report
    from paribus.results import write_tables
    from paribus.results.store import answering, secure

    prepare()
    secure(results.path)
    results, written = results.standing, []
    with answering(results.path):
        sweep(results.path)
        with doing(console, "analysing"):
            _ = results.trial_probes  # whole, as figures and tables need them: read once for all
            analysis, verdicts = _judge(results)
            write_tables(results)
        with doing(console, "drawing the page and the paper" if paper else "drawing the page"):
            results = results.judged
            drawn = draw(results, analysis)
            written.append(f"page: {write_report(results, analysis, verdicts, drawn)}")
            if paper:
                written.append(f"paper: {write_paper(results, analysis, verdicts, drawn)}")
    if answer.verbose:
        show(*printed.chosen(analysis), *printed.comparison(analysis))
        show(*printed.verdicts(analysis.study, verdicts))
    return _give(analysis, verdicts, answer, written)


def _give(
    analysis: Analysis, verdicts: list[Verdict], answer: Answer, written: Sequence[str] = ()
) -> int:
    """Print the card, or verdict.json; returns the exit code."""
    from paribus.cli import printed
    from paribus.decision import WORDS, exit_code, verdict_record
    from paribus.migrations import stamped

    if answer.json:
        print_json(stamped(verdict_record(analysis.study, verdicts)))
    else:
        show(*printed.card(analysis, verdicts))
    for line in written:
        show_path(line)
    code = exit_code(verdict.word for verdict in verdicts)
    return code if answer.exit_verdict or code == WORDS["INVALID"].exit_code else 0
