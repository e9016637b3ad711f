"""Commands for results folders, papers and the ledger."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape

from paribus.cli.options import (
    CREW,
    Crew,
    Folder,
    Json,
    Step,
    Trust,
    console,
    print_stamped,
    show,
    show_path,
    table,
)
from paribus.errors import ParibusError, one_line

if TYPE_CHECKING:
    from paribus.runs.executors.jobs import JobState

WATCH_SECONDS = 2.0


def status(folder: Folder, *, follow: bool = False, json: Json = False) -> None:
    """List the trials in a results folder and their progress.

    Args:
        follow: Show progress until the run ends; works from any terminal.
    """
    from paribus.cli import tables
    from paribus.results import ResultsFolder, load_results
    from paribus.runs.progress import read_progress
    from paribus.runs.queue import Queue

    home = ResultsFolder(folder)
    if follow:
        if json:
            raise ParibusError("--follow and --json cannot be combined; remove one of them")
        _follow(folder)
    job_states = _running_jobs(folder)
    # The job that registers a study may be waiting.
    results = load_results(folder) if home.exists or not job_states else None
    failure = Queue.locate(folder).failure()
    if json:
        groups = {"finished": results.finished, "unfinished": results.unfinished} if results else {}
        labels = {name: [trial.label for trial in trials] for name, trials in groups.items()}
        jobs = {"jobs": list(map(asdict, job_states))} if job_states else {}
        print_stamped({"finished": [], "unfinished": []} | labels | jobs)
        return
    if results:
        live = None if Queue.locate(folder).is_over else read_progress(folder)
        counts = f"{len(results.finished)} of {results.n_trials} trials are finished"
        failed = [tuple(trial) for trial in failure["trials"]] if failure else []
        show(tables.trials(results, live, failed), counts, tables.standing(results, home))
        if live:
            show(f"running: {live.summary()}")
    show(tables.jobs(job_states))
    if failure:
        show_path(f"run failed: {one_line(failure['message'])}")


def _follow(folder: Path) -> None:
    """Show a run's progress until it ends. Ctrl-C stops the display, not the run."""
    from paribus.runs.progress import read_progress, watching
    from paribus.runs.standing import is_active

    with contextlib.suppress(KeyboardInterrupt), watching(console) as watch:
        while is_active(folder):
            if live := read_progress(folder):  # None until the study is registered
                watch(live)
            time.sleep(WATCH_SECONDS)


def cancel(folder: Folder) -> None:
    """Cancel a running study: its scheduler jobs or its local process."""
    from paribus.runs.standing import cancel as cancel_study

    show_path(cancel_study(folder))
    show_path("finished trials and checkpoints are kept; run the study again to continue")


def _running_jobs(folder: Path) -> list[JobState]:
    """Return the jobs of a results folder; if the scheduler fails, warn and return []."""
    from paribus.runs.standing import job_states

    try:
        return job_states(folder)
    except ParibusError as error:
        show(f"[yellow]{escape(str(error))}[/]")
        return []


def extend(folder: Folder, *, seeds: int) -> None:
    """Add seeds to a finished study as a registered second stage.

    Args:
        seeds: The number of seeds to add; 0 removes a second stage of which no trial is finished.
    """
    from paribus.report.cautions import extension_text
    from paribus.results import extend as extend_study

    study = extend_study(folder, seeds, lambda planned: show(extension_text(planned)))
    if not study.stages:
        show("removed: the second stage")
        return
    first, last = study.seeds[study.stages[0]], study.seeds[-1]
    show(f"registered: a second stage, seeds {first} to {last}")
    verb = "judge --study" if study.trainer == "runs" else "run"
    show_path(f"to continue, with your study file: paribus {verb} study.toml --results {folder}")
    show_path(f"to undo, before a trial of it has finished: paribus extend {folder} --seeds 0")


def evaluate(
    folder: Folder,
    *,
    tasks: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    fewshot: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    standard: bool = False,
    data: Path | None = None,
    where: Crew = CREW,
    trust: Trust = False,
) -> None:
    """Evaluate finished trials on additional zero- and few-shot tasks.

    Args:
        tasks: The names of tasks; by default all.
        fewshot: The numbers of examples in the prompt; by default 0 1 3, or 0 with --standard.
        standard: Download and use tasks of the LM Evaluation Harness.
        data: A folder with local copies of the standard tasks' data sets.
    """
    from paribus.engine.execution.evaluate import evaluate as evaluate_trials
    from paribus.report.tables import accuracy_table
    from paribus.results import ResultsFolder

    answered = evaluate_trials(
        folder,
        tasks=tasks,
        shots=fewshot,
        standard=standard,
        data=data,
        **where.options(),
        trust=trust,
    )
    study = ResultsFolder(folder).read_study()
    show(accuracy_table(study, answered.tasks.to_pylist()))
    show_path(f"answers: {answered.path}")


def verify(results: Folder, *, json: Json = False, trust: Trust = False) -> int:
    """Check a results folder for changes, and recompute scores, analysis and verdicts."""
    from paribus.verification import verify as verify_folder

    outcome = verify_folder(results, trust=trust)
    if json:
        print_stamped(asdict(outcome))
    else:
        kinds = {"checked": outcome.checked, "problem": outcome.findings}
        for kind, lines in (kinds | {"unfinished": outcome.unfinished}).items():
            for line in lines:
                show_path(f"{kind}: {line}")
        show_path(f"root: {outcome.root}")
    return 3 if outcome.findings or outcome.unfinished else 0


def archive(results: Folder, out: Path) -> None:
    """Copy a results folder without model weights, such as for a repository.

    Args:
        out: The folder to create.
    """
    from paribus.numbers import plural
    from paribus.results import archive as archive_study, load_results

    loaded = load_results(results)
    written = archive_study(loaded, out)
    if loaded.unfinished:
        print(f"skipped: {plural(len(loaded.unfinished), 'unfinished trial')}")
    show_path(f"archive: {written}")


def values(paper: Path, *, check: Path | None = None) -> int:
    """Write values, tables and figures of studies for a paper in Typst or LaTeX.

    Args:
        paper: A paper.toml file, which lists the studies.
        check: A document to check for hard-coded numbers and outdated values; exit with 1 if any.
    """
    from paribus.report.values import check_document, write_values

    if check is not None:
        findings = check_document(paper, check)
        for line in findings:
            show_path(line)
        return 1 if findings else 0
    for path in write_values(paper):
        show_path(f"written: {path}")
    return 0


def export(
    results: Folder,
    out: Path,
    *,
    trial: str,
    folder: Path | None = None,
    step: Step = None,
    trust: Trust = False,
) -> None:
    """Export a trained model to a Hugging Face folder.

    Args:
        out: The folder to create; it must be new or empty.
        trial: The trial whose model to export, as ARM/seed-N, such as layernorm/seed-1.
        folder: The folder for resolving relative paths of the study's texts.
    """
    from paribus.engine.export import export_trial

    arm, _, seed = trial.rpartition("/seed-")
    if not arm or not seed.isdecimal():
        raise ParibusError(f"--trial '{trial}' must be ARM/seed-N, such as layernorm/seed-1")
    options = {"folder": folder, "step": step, "trust": trust}
    written = export_trial(results, arm, int(seed), out, **options)
    show_path(f"exported: {written}")


def ledger(*, json: Json = False) -> None:
    """List the held-out texts in the ledger (PARIBUS_LEDGER) and the studies that used them."""
    from paribus.ledger import VARIABLE, events_in, ledger_path, uses

    path = ledger_path()
    if path is None:
        raise ParibusError(f"{VARIABLE} is empty, which turns the ledger off; set it to a file")
    events = events_in(path)
    texts = {event.text.digest: event.text for event in events if event.text}
    if json:
        print_stamped({"path": str(path), "entries": [event.entry for event in events]})
        return
    show_path(f"ledger: {path}, {len(events)} entries")
    head = ("text", "opened for", "tests", "since", "study")
    rows = [
        (
            *(text.digest[:8], "test" if use.is_test else "validation"),
            *(str(use.tests), use.time[:10], use.study),
        )
        for text in texts.values()
        for use in uses(events, [text])
    ]
    show(table("texts", head, rows))
