"""The verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from paribus.cli import tables
from paribus.errors import ParibusError
from paribus.execution import Device
from paribus.study import Study, load_study, parse_override, shipped_studies

# What several verbs take.
StudyName = Annotated[
    str, Parameter(help="A shipped name (see `paribus studies`), or the path of a TOML file.")
]
Folder = Annotated[Path, Parameter(help="The results folder of a study.")]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="Override a key of the study: key=value."),
]
Workers = Annotated[
    int | None, Parameter(help="Worker processes; by default one per core, on a GPU one.")
]
Where = Annotated[Device, Parameter(help="Where to train.")]

console = Console(highlight=False, soft_wrap=False)


def studies() -> None:
    """List the studies that ship with paribus."""
    console.print(tables.shipped(shipped_studies()))


def show(
    study: StudyName, *, set_: Overrides = None, workers: Workers = None, device: Where = "auto"
) -> None:
    """Show what a study would do: its arms, its cost on this machine, its whole specification."""
    from paribus.execution import estimate

    loaded = _load(study, set_)
    cost = estimate(loaded, workers=workers, device=device)
    for part in tables.study(loaded, cost):
        console.print(part)


def run(
    study: StudyName,
    *,
    results: Annotated[
        Path | None, Parameter(help="The results folder; by default results/<study>.")
    ] = None,
    workers: Workers = None,
    device: Where = "auto",
    stack: Annotated[
        int | None,
        Parameter(help="Seeds trained side by side in one worker; by default 1 on a CPU."),
    ] = None,
    set_: Overrides = None,
) -> int:
    """Train, evaluate, compare and report a study; continues where an earlier run stopped."""
    from paribus.cli.progress import watching
    from paribus.execution import run as run_study

    loaded = _load(study, set_)
    with watching(console) as watch:
        done = run_study(loaded, results, workers=workers, device=device, stack=stack, watch=watch)
    return _finish(done.path)


def status(folder: Folder) -> None:
    """Show which trials of a results folder are finished."""
    from paribus.results import load_results

    for part in tables.status(load_results(folder)):
        console.print(part)


def report(folder: Folder) -> int:
    """Draw the report of a results folder again, from its records alone."""
    return _finish(folder)


def _load(study: str, overrides: list[str] | None) -> Study:
    return load_study(study, dict(parse_override(text) for text in overrides or ()))


def _finish(folder: Path) -> int:
    """Compare, print and write the report; 1 where controls did not hold."""
    from paribus.analysis import analyse
    from paribus.report import write_report
    from paribus.results import load_results, write_tables

    results = load_results(folder)
    if not results.finished:
        raise ParibusError(f"no trial in {folder} is finished; run the study first")
    analysis = analyse(results)
    write_tables(results)
    page = write_report(results, analysis)
    for part in tables.comparison(analysis):
        console.print(part)
    console.print(f"report: {page}", soft_wrap=True)
    return 1 if any(control.state == "broken" for control in analysis.controls) else 0
