"""The verbs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from paribus.cli import decision_tables, tables
from paribus.errors import ParibusError
from paribus.execution import Device
from paribus.study import Study, load_study, parse_override, require_trust, shipped_studies

if TYPE_CHECKING:
    from paribus.analysis import Analysis
    from paribus.decision import Verdict
    from paribus.results import Results

# What several verbs take.
StudyName = Annotated[
    str, Parameter(help="A shipped name (see `paribus studies`), or the path of a TOML file.")
]
Folder = Annotated[Path, Parameter(help="The results folder of a study.")]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="Override a key of the study: key=value."),
]
ResultsPath = Annotated[
    Path | None, Parameter(name="--results", help="The results folder; by default results/<study>.")
]
Workers = Annotated[
    int | None, Parameter(help="Worker processes; by default one per core, or one per GPU.")
]
StackSize = Annotated[
    int | None,
    Parameter(help="Trials side by side in a worker; by default 1, on a GPU all that fit."),
]
Where = Annotated[Device, Parameter(help="Where to train.")]
Step = Annotated[
    int | None,
    Parameter(help="Weights kept after this step (training.keep), instead of the last."),
]
AverageLast = Annotated[
    int, Parameter(help="Take the mean of so many kept sets of weights, up to that one.")
]
Eager = Annotated[
    bool,
    Parameter(
        negative=(),
        help="Launch a GPU's kernels one by one: slower, for modules that read a tensor's value.",
    ),
]

Trust = Annotated[
    bool,
    Parameter(negative=(), help="Run the custom code that a results folder names, once read."),
]

console = Console(highlight=False, soft_wrap=False)


def studies() -> None:
    """List the studies that ship with paribus."""
    console.print(tables.shipped(shipped_studies()))


def show(
    study: StudyName,
    *,
    parameters: Annotated[
        bool,
        Parameter(negative=(), help="Every parameter: how it starts, and what decays it."),
    ] = False,
    set_: Overrides = None,
    workers: Workers = None,
    device: Where = "auto",
    stack: StackSize = None,
    trust: Trust = False,
) -> None:
    """Show what a study would do: its arms, its cost on this machine, its whole specification."""
    loaded = _load(study, set_, trust)
    if parameters:
        from paribus.cli import parameter_table
        from paribus.training.parameters import parameter_rows, parameter_warnings

        rows = {arm: parameter_rows(loaded, arm) for arm in loaded.arms}
        parts = parameter_table.parameters(loaded, rows, parameter_warnings(loaded))
    else:
        from paribus.execution import estimate

        cost = estimate(loaded, workers=workers, device=device, stack=stack)
        parts = (*tables.study(loaded, cost), *decision_tables.design(loaded, cost.metrics))
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
    device: Where = "auto",
    stack: StackSize = None,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """What a study costs on this machine, and the smallest effect it can detect."""
    from paribus.analysis import analyse as analyse_results
    from paribus.analysis import detectable
    from paribus.execution import estimate
    from paribus.results import load_results

    loaded = _load(study, set_, trust)
    earlier = analyse_results(load_results(pilot)) if pilot else None
    rows = detectable(loaded, pilot=earlier, sd=sd) if pilot or sd is not None else []
    cost = estimate(loaded, workers=workers, device=device, stack=stack)
    for part in (
        tables.cost(loaded, cost),
        *decision_tables.detectable(loaded, rows, cost.metrics),
    ):
        console.print(part)


def register(
    study: StudyName,
    *,
    results: ResultsPath = None,
    device: Where = "auto",
    eager: Eager = False,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Fix what would count before the first run."""
    from paribus.execution import register as register_study

    loaded = _load(study, set_, trust)
    path = register_study(loaded, results, device=device, eager=eager)
    for part in decision_tables.design(loaded, {}, warnings=True):
        console.print(part)
    console.print(f"registered: {path}", soft_wrap=True)


def run(
    study: StudyName,
    *,
    results: ResultsPath = None,
    workers: Workers = None,
    device: Where = "auto",
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
    loaded = _load(study, set_, trust)
    for part in decision_tables.design(loaded, {}, warnings=True):
        console.print(part)
    return _finish(_train(loaded, results, workers, device, stack, log or [], eager=eager))


def watch(folder: Folder) -> None:
    """Follow a study under way; leaves when it is finished."""
    from paribus.cli.watch import watch as watch_folder

    watch_folder(folder, console)


def status(folder: Folder) -> None:
    """Show which trials of a results folder are finished."""
    from paribus.results import load_results

    for part in tables.status(load_results(folder)):
        console.print(part)


def analyse(
    folder: Folder,
    *,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative=(), help="Every contrast and task in full as well."),
    ] = False,
) -> int:
    """Test every contrast as registered; everything goes to analysis.json."""
    from paribus.cli import task_tables
    from paribus.results import load_results

    analysis, verdicts = _analyse(load_results(folder))
    for part in tables.summary(analysis, verdicts):
        console.print(part)
    if all_:
        for part in (*task_tables.task_contrasts(analysis), *tables.contrasts(analysis)):
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


def evaluate(
    folder: Folder,
    *,
    tasks: Annotated[
        list[str] | None,
        Parameter(negative=(), consume_multiple=True, help="Tasks by name; by default all."),
    ] = None,
    fewshot: Annotated[
        str | None, Parameter(help="Solved examples before each question, such as 0,1,3.")
    ] = None,
    items: Annotated[
        int | None, Parameter(help="Questions of each task; by default all of them.")
    ] = None,
    standard: Annotated[
        bool, Parameter(negative=(), help="The harness's own tasks, which are downloaded.")
    ] = False,
    data: Annotated[
        Path | None, Parameter(help="Where copies of the standard tasks' data sets lie.")
    ] = None,
    step: Step = None,
    average_last: AverageLast = 1,
    workers: Workers = None,
    device: Where = "auto",
    trust: Trust = False,
) -> None:
    """Let finished trials answer zero- and few-shot tasks through the LM Evaluation Harness."""
    from paribus.cli import task_tables
    from paribus.execution import evaluate as evaluate_trials
    from paribus.results import ResultsFolder

    found = evaluate_trials(
        folder,
        tasks=tasks,
        shots=_shots(fewshot),
        items=items,
        kind="standard" if standard else "own",
        data=data,
        step=step,
        average_last=average_last,
        workers=workers,
        device=device,
        trust=trust,
    )
    for part in task_tables.answers(ResultsFolder(folder).read_study(), found):
        console.print(part)
    console.print(f"answers: {found.path}", soft_wrap=True)


def null(
    study: StudyName,
    *,
    replicates: Annotated[int, Parameter(help="A/A studies, each with the study's seeds.")],
    results: ResultsPath = None,
    workers: Workers = None,
    device: Where = "auto",
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Run the baseline against itself through the whole pipeline, and count what is found."""
    from paribus.decision import calibrate
    from paribus.results.formats import write_json
    from paribus.study import null_study

    loaded = _load(study, set_, trust)
    nulls = null_study(loaded, replicates)
    done = _train(nulls, results, workers, device, None)
    calibration = calibrate(done, pairs=len(loaded.seeds))
    write_json(done.path / "null.json", calibration.to_dict())
    for part in decision_tables.calibration(calibration):
        console.print(part)
    console.print(f"null: {done.path / 'null.json'}", soft_wrap=True)


def bench(
    study: StudyName = "quickstart",
    *,
    arm: Annotated[str | None, Parameter(help="Which arm; by default the baseline.")] = None,
    workers: Workers = None,
    device: Where = "auto",
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
    from paribus.cli import bench_table
    from paribus.execution import bench as bench_study
    from paribus.results.formats import write_json

    loaded = _load(study, set_, trust)
    with console.status("timing"):
        found = bench_study(loaded, arm, workers=workers, device=device, stacks=stack, steps=steps)
    for part in bench_table.bench(found):
        console.print(part)
    if json is not None:
        write_json(json, found.to_dict(), sort_keys=False)
        console.print(f"bench: {json}", soft_wrap=True)


def report(folder: Folder) -> int:
    """Draw the page and the paper of a results folder again, from its records alone."""
    from paribus.results import load_results

    return _finish(load_results(folder))


def verify(
    results: Folder,
    *,
    trials: Annotated[
        bool,
        Parameter(negative=(), help="Evaluate every trial's weights again, and redraw its start."),
    ] = False,
    folder: Annotated[
        Path | None,
        Parameter(help="Where the study file lies, if its text is named by a relative path."),
    ] = None,
    workers: Workers = None,
    device: Where = "auto",
    trust: Trust = False,
) -> int:
    """Check a results folder against itself; 3 where something does not agree."""
    from paribus.verification import verify as verify_folder

    found = verify_folder(
        results, trials=trials, folder=folder, trust=trust, workers=workers, device=device
    )
    for line in found.checked:
        console.print(f"checked: {line}", soft_wrap=True, markup=False)
    for line in found.findings:
        console.print(f"does not agree: {line}", soft_wrap=True, markup=False)
    console.print(f"root: {found.root}", soft_wrap=True)
    return 3 if found.findings else 0


def compare(
    *folders: Folder,
    output: Annotated[Path, Parameter(help="The page to write.")] = Path("compare.html"),
) -> None:
    """Put several studies of the same arms on one page, side by side; nothing is pooled."""
    from paribus.report import write_comparison
    from paribus.results import load_results

    path = write_comparison([load_results(folder) for folder in folders], output)
    console.print(f"comparison: {path}", soft_wrap=True)


def export(
    results: Folder,
    out: Annotated[Path, Parameter(help="The folder to write; it must be new or empty.")],
    *,
    trial: Annotated[str, Parameter(help="Which model: ARM/seed-N, such as layernorm/seed-1.")],
    folder: Annotated[
        Path | None,
        Parameter(help="Where the study file lies, if its text is named by a relative path."),
    ] = None,
    step: Step = None,
    average_last: AverageLast = 1,
    trust: Trust = False,
) -> None:
    """Write a trained model as a Hugging Face folder; its logits are ours."""
    from paribus.export import export_trial

    arm, _, seed = trial.rpartition("/seed-")
    if not arm or not seed.isdecimal():
        raise ParibusError(f"--trial '{trial}' must be ARM/seed-N, such as layernorm/seed-1")
    written = export_trial(
        results,
        arm,
        int(seed),
        out,
        folder=folder,
        step=step,
        average_last=average_last,
        trust=trust,
    )
    console.print(f"exported: {written}", soft_wrap=True)


def _train(
    study: Study,
    results: Path | None,
    workers: int | None,
    device: Device,
    stack: int | None,
    log: Sequence[str] = (),
    *,
    eager: bool = False,
) -> Results:
    from paribus.cli.progress import watching
    from paribus.execution import run as run_study

    with watching(console) as watch:
        return run_study(
            study,
            results,
            workers=workers,
            device=device,
            stack=stack,
            eager=eager,
            watch=watch,
            log=log,
        )


def _shots(text: str | None) -> list[int] | None:
    """Numbers parted by commas."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise ParibusError(f"--fewshot {text} must be whole numbers, such as 0,1,3")
    return [int(part) for part in parts]


def _load(study: str, overrides: list[str] | None, trust: bool) -> Study:
    from paribus.decision import find_rule

    changes = dict(parse_override(text) for text in overrides or ())
    loaded = load_study(study, changes, trust=trust)
    require_trust(loaded)
    find_rule(loaded)  # a rule that is none is told at once
    return loaded


def _analyse(results: Results) -> tuple[Analysis, list[Verdict]]:
    """Analyse and decide; leaves analysis.json and verdict.json."""
    from paribus.analysis import analyse as analyse_results
    from paribus.decision import decide as decide_analysis
    from paribus.results.formats import write_json
    from paribus.results.layout import secure

    secure(results.path)
    if not results.finished:
        raise ParibusError(f"no trial in {results.path} is finished; run the study first")
    analysis = analyse_results(results)
    verdicts = decide_analysis(analysis)
    write_json(results.path / "analysis.json", analysis.to_dict())
    write_json(results.path / "verdict.json", [verdict.to_dict() for verdict in verdicts])
    return analysis, verdicts


def _finish(results: Results) -> int:
    """Analyse, decide, print, write page and paper; returns the exit code."""
    from paribus.cli.progress import doing
    from paribus.files import sweep
    from paribus.report import draw, prepare, write_paper, write_report
    from paribus.results import write_tables
    from paribus.results.layout import secure

    prepare()
    secure(results.path)
    sweep(results.path)
    with doing(console, "analysing"):
        analysis, verdicts = _analyse(results)
        write_tables(results)
    with doing(console, "drawing the page and the paper"):
        drawn = draw(results, analysis)
        page = write_report(results, analysis, verdicts, drawn)
        paper = write_paper(results, analysis, verdicts, drawn)
    for part in (*tables.comparison(analysis), *decision_tables.verdicts(verdicts)):
        console.print(part)
    console.print(f"report: {page}", soft_wrap=True)
    console.print(f"paper: {paper}", soft_wrap=True)
    return _exit_code(verdicts)


def _exit_code(verdicts: list[Verdict]) -> int:
    """3 where an arm cannot be judged: a trial is missing, or a control did not hold."""
    return 3 if any(verdict.outcome == "INVALID" for verdict in verdicts) else 0
