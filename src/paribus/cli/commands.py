"""The verbs of a study, from what it would do to its verdict; see also `folder_verbs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from paribus.cli.options import (
    HERE,
    Eager,
    Folder,
    Overrides,
    ResultsPath,
    StackSize,
    StudyName,
    Trust,
    Where,
    Workers,
    console,
)
from paribus.errors import ParibusError
from paribus.study import Study, load_study, parse_override, require_trust, shipped_studies

if TYPE_CHECKING:
    from rich.console import RenderableType

    from paribus.analysis import Analysis
    from paribus.decision import Verdict
    from paribus.results import Results


def studies() -> None:
    """List the studies that ship with paribus."""
    from paribus.cli import study_tables

    console.print(study_tables.shipped(shipped_studies()))


def show(
    study: StudyName,
    *,
    parameters: Annotated[
        bool,
        Parameter(negative=(), help="Every parameter: how it starts, and what decays it."),
    ] = False,
    set_: Overrides = None,
    workers: Workers = None,
    where: Where = HERE,
    stack: StackSize = None,
    trust: Trust = False,
) -> None:
    """Show what a study would do: its arms, its cost on this machine, its whole specification."""
    loaded = _load(study, set_, trust, None if parameters else where)
    if parameters:
        from paribus.cli import parameter_table
        from paribus.engine.execution.workers.lifetime import ending_children
        from paribus.engine.training.parameters import parameter_rows, parameter_warnings

        with ending_children():  # models of own code are built here
            rows = {arm: parameter_rows(loaded, arm) for arm in loaded.arms}
            warnings = parameter_warnings(loaded)
        parts = parameter_table.parameters(loaded, rows, warnings)
    else:
        from paribus.cli import decision_tables, study_tables
        from paribus.engine.execution.timing.budgets import settled_budgets
        from paribus.engine.execution.timing.estimate import estimate

        loaded = settled_budgets(loaded, **where.chosen())
        cost = estimate(loaded, workers=workers, **where.chosen(), stack=stack)
        parts = (*study_tables.study(loaded, cost), *decision_tables.design(loaded, cost.metrics))
    for part in parts:
        console.print(part)


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
) -> None:
    """What a study costs on this machine, and the smallest effect it can detect."""
    loaded = _load(study, set_, trust, where)
    from paribus.analysis import analyse as analyse_results
    from paribus.analysis import detectable, planned_looks
    from paribus.cli import decision_tables, sampling_tables, study_tables
    from paribus.engine.execution.timing.estimate import estimate
    from paribus.results import load_results

    earlier = analyse_results(load_results(pilot)) if pilot else None
    rows = detectable(loaded, pilot=earlier, sd=sd) if pilot or sd is not None else []
    cost = estimate(loaded, workers=workers, **where.chosen(), stack=stack)
    largest = max((row.sd for row in rows), default=None)
    for part in (
        study_tables.cost(loaded, cost),
        *sampling_tables.planned(loaded, planned_looks(loaded, largest)),
        *decision_tables.detectable(loaded, rows, cost.metrics),
    ):
        console.print(part)


def register(
    study: StudyName,
    *,
    results: ResultsPath = None,
    where: Where = HERE,
    eager: Eager = False,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Fix what would count before the first run."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import decision_tables
    from paribus.engine.execution.run import register as register_study

    path = register_study(loaded, results, **where.chosen(), eager=eager)
    for part in decision_tables.design(loaded, {}, warnings=True):
        console.print(part)
    console.print(f"registered: {path}", soft_wrap=True)


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
    set_: Overrides = None,
    trust: Trust = False,
) -> int:
    """Train, evaluate, compare and report a study; continues an earlier run."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import decision_tables
    from paribus.engine.execution.run import results_folder
    from paribus.results import extended

    staged = extended(loaded, results_folder(loaded, results))
    warnings = [*decision_tables.design(staged, {}, warnings=True)]
    done = _train(loaded, results, workers, where, stack, log or [], eager=eager, before=warnings)
    return _finish(done)


def analyse(
    folder: Folder,
    *,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative=(), help="Every contrast and task in full as well."),
    ] = False,
) -> int:
    """Test every contrast as registered; everything goes to analysis.json."""
    from paribus.cli import printed_tables, sampling_tables, task_tables, tuning_tables
    from paribus.results import load_results

    analysis, verdicts = _analyse(load_results(folder))
    for part in (
        *tuning_tables.chosen(analysis),
        *printed_tables.summary(analysis, verdicts),
        *sampling_tables.sampled(analysis),
    ):
        console.print(part)
    if all_:
        for part in (*task_tables.task_contrasts(analysis), *printed_tables.contrasts(analysis)):
            console.print(part)
    else:
        console.print("[dim]--all prints every contrast and task in full[/]")
    return _exit_code(verdicts)


def decide(
    folder: Annotated[
        Path | None, Parameter(help="The results folder of a study; --rows needs none.")
    ] = None,
    *,
    rows: Annotated[
        bool, Parameter(negative=(), help="Print the decision table too, row by row.")
    ] = False,
) -> int:
    """The verdict on every arm, with the row of the registered rule that fired."""
    from paribus.cli import decision_tables
    from paribus.decision import rule_of, shipped_rules
    from paribus.results import load_results

    if folder is None:
        if not rows:
            raise ParibusError("decide takes a results folder, or --rows for the rules alone")
        for rule in shipped_rules().values():
            console.print(decision_tables.decision_rows(rule, []))
        return 0
    analysis, verdicts = _analyse(load_results(folder))
    for part in decision_tables.verdicts(verdicts):
        console.print(part)
    if rows:
        console.print(decision_tables.decision_rows(rule_of(analysis), verdicts))
    return _exit_code(verdicts)


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
    """Run the baseline against itself through the whole pipeline, and count what is found."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import decision_tables
    from paribus.decision import calibrate
    from paribus.results.formats import write_json
    from paribus.study import null_study

    nulls = null_study(loaded, replicates)
    done = _train(nulls, results, workers, where, None)
    calibration = calibrate(done, pairs=len(loaded.seeds), plan=loaded.plan)
    write_json(done.path / "null.json", calibration.to_dict())
    for part in decision_tables.calibration(calibration):
        console.print(part)
    if loaded.tuning is not None:
        console.print(
            "Without the tuning: every arm has the values of the study file, so that what the "
            "choice of values adds is not in these rates (docs/tuning.md)."
        )
    console.print(f"null: {done.path / 'null.json'}", soft_wrap=True)


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
    """Time training on this machine: against its ceiling, and where the time goes."""
    loaded = _load(study, set_, trust, where)
    from paribus.cli import bench_table
    from paribus.engine.execution.timing.bench import bench as bench_study
    from paribus.results.formats import write_json

    with console.status("timing"):
        found = bench_study(
            loaded,
            arm,
            workers=workers,
            **where.chosen(),
            stacks=stack,
            steps=steps,
        )
    for part in bench_table.bench(found):
        console.print(part)
    if json is not None:
        write_json(json, found.to_dict())
        console.print(f"bench: {json}", soft_wrap=True)


def report(folder: Folder) -> int:
    """Draw the page and the paper of a results folder again, from its records alone."""
    from paribus.results import load_results

    return _finish(load_results(folder))


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
) -> Results:
    """Run a study; what is to be said `before` is printed once nothing refuses it any more."""
    from paribus.cli.progress import watching
    from paribus.engine.execution.run import run as run_study

    with watching(console, before) as watch:
        return run_study(
            study,
            results,
            workers=workers,
            **where.chosen(),
            stack=stack,
            eager=eager,
            watch=watch,
            log=log,
        )


def _load(study: str, overrides: list[str] | None, trust: bool, where: Where | None) -> Study:
    """The study; its workers begin to import what they need, and so does this process after it.

    What is imported up here would be waited for before they begin: the rest is, in each verb.
    """
    changes = dict(parse_override(text) for text in overrides or ())
    loaded = load_study(study, changes, trust=trust)
    require_trust(loaded)
    if where is not None:
        where.warm_up()
    from paribus.decision import find_rule

    find_rule(loaded)  # a rule that is none is told at once
    return loaded


def _analyse(results: Results) -> tuple[Analysis, list[Verdict]]:
    """Analyse and decide; leaves analysis.json and verdict.json."""
    from paribus.results.layout import answering

    with answering(results.path):
        return _judge(results)


def _judge(results: Results) -> tuple[Analysis, list[Verdict]]:
    from paribus.analysis import analyse as analyse_results
    from paribus.decision import decide as decide_analysis
    from paribus.results.formats import write_json
    from paribus.results.layout import secure

    if not results.finished:
        raise ParibusError(f"no trial in {results.path} is finished; run the study first")
    secure(results.path)
    analysis = analyse_results(results)
    verdicts = decide_analysis(analysis)
    results.require_current()
    write_json(results.path / "analysis.json", analysis.to_dict())
    told = {"verdicts": [verdict.to_dict() for verdict in verdicts]}
    write_json(results.path / "verdict.json", told)
    return analysis, verdicts


def _finish(results: Results) -> int:
    """Analyse, decide, print, write page and paper; returns the exit code."""
    from paribus.cli import decision_tables, printed_tables, tuning_tables
    from paribus.cli.progress import doing
    from paribus.files import sweep
    from paribus.report import draw, prepare, write_paper, write_report
    from paribus.results import write_tables
    from paribus.results.layout import answering, secure

    prepare()
    secure(results.path)
    results = results.standing
    with answering(results.path):
        sweep(results.path)
        with doing(console, "analysing"):
            _ = results.trial_probes  # whole, as figures and tables need them: read once for all
            analysis, verdicts = _judge(results)
            write_tables(results)
        with doing(console, "drawing the page and the paper"):
            results = results.judged
            drawn = draw(results, analysis)
            page = write_report(results, analysis, verdicts, drawn)
            paper = write_paper(results, analysis, verdicts, drawn)
    told = (*tuning_tables.chosen(analysis), *printed_tables.comparison(analysis))
    for part in (*told, *decision_tables.verdicts(verdicts)):
        console.print(part)
    console.print(f"report: {page}", soft_wrap=True)
    console.print(f"paper: {paper}", soft_wrap=True)
    return _exit_code(verdicts)


def _exit_code(verdicts: list[Verdict]) -> int:
    """3 where an arm cannot be judged: a trial is missing, or a control did not hold."""
    return 3 if any(verdict.outcome == "INVALID" for verdict in verdicts) else 0
