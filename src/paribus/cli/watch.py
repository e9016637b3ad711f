"""`paribus status DIR --follow`: a run, seen from another terminal."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid

from paribus import numbers
from paribus.cli.folder_verbs import running_jobs
from paribus.cli.options import table
from paribus.cli.tables import jobs, standing
from paribus.report.table_model import MARKS, Table
from paribus.results import Results, ResultsFolder, load_results
from paribus.runs.progress import Progress
from paribus.runs.standing import read_progress
from paribus.study import is_untuned

SECONDS = 2.0
LONG_AGO = 60  # seconds after which the age of the last message is shown


def watch(folder: Path, console: Console) -> None:
    """Show the study in `folder` until it is finished; once if there is no terminal.

    Wait for a folder that does not exist yet. Ctrl-C ends it, and the run goes on.
    """
    with contextlib.suppress(KeyboardInterrupt):
        _wait_for(folder, console)
        shown, is_done = picture(folder)
        if not console.is_terminal:
            console.print(shown)
            return
        with Live(shown, console=console, refresh_per_second=2) as live:
            while not is_done:
                time.sleep(SECONDS)
                shown, is_done = picture(folder)
                live.update(shown)


def _wait_for(folder: Path, console: Console) -> None:
    """Return once there is a study in `folder`, or something else."""
    if _is_to_come(folder):
        where = escape(str(folder))
        console.print(f"waiting for a study in {where}; Ctrl-C ends this", soft_wrap=True)
        console.print(jobs(running_jobs(folder)))
    while _is_to_come(folder):
        time.sleep(SECONDS / 4)


def _is_to_come(folder: Path) -> bool:
    """Return whether a run may still begin there: no folder, or one with hidden files only."""
    if ResultsFolder(folder).exists or folder.is_file():
        return False
    return not folder.exists() or all(path.name[0] == "." for path in folder.iterdir())


def picture(folder: Path) -> tuple[Group, bool]:
    """Return the state of the study, or of its tuning trials, and whether it is done."""
    home = ResultsFolder(folder)
    is_tuning = is_untuned(home.read_study())
    current = home.tuning_trials if is_tuning and home.tuning_trials.exists else home
    results, live = load_results(current.path), read_progress(folder)
    n_finished, n_trials = len(results.finished), results.n_trials
    done, total = (live.tokens_done, live.tokens) if live else (n_finished, n_trials)
    bar = Grid.grid()
    bar.add_row(ProgressBar(total, done, width=72))
    shown = Group(
        f"[bold]{escape(results.study.title or results.study.name)}[/]",
        bar,
        _summary(n_finished, n_trials, live),
        _arms(results, live),
        standing(results, home).rstrip(),
        *_controls(results),
        jobs(running_jobs(folder)),
    )
    return shown, not is_tuning and n_finished == n_trials and live is None


def _summary(n_finished: int, n_trials: int, live: Progress | None) -> str:
    parts = [f"{n_finished}/{n_trials} trials"]
    if live is None:
        return parts[0] if n_finished == n_trials else f"{parts[0]}; no run is under way"
    if live.unit == "tokens":
        parts.append(f"{live.tokens_per_second:,.0f} tokens/s")
    if live.doing:
        parts.append(live.doing)
    elif live.seconds_left is not None:
        parts.append(f"{numbers.duration(live.seconds_left)} left")
    age = time.time() - live.heard
    if age > LONG_AGO:
        parts.append(f"[yellow]last heard of {numbers.duration(age)} ago[/]")
    return ", ".join(parts)


def _arms(results: Results, live: Progress | None) -> Table:
    """Return a row for each arm: its trials, and the last loss of one that is being trained."""
    running = live.running if live else {}
    rows = []
    for arm in results.study.arms:
        done = sum(trial.arm == arm for trial in results.finished)
        n = done + sum(trial.arm == arm for trial in results.unfinished)
        now = [last for label, last in running.items() if label.rpartition("/")[0] == arm]
        step, loss = now[-1] if now else (None, None)
        cells = (str(len(now)), "" if step is None else str(step), numbers.fixed(loss, 3))
        rows.append((arm, f"{done}/{n}", *cells))
    return table("", ("arm", "done", "now", "step", "loss"), rows)


def _controls(results: Results) -> list[str]:
    """Return a line for each contrast: which controls hold so far."""
    lines = []
    for arm, reference in results.study.contrasts:
        marks = [
            f"[{MARKS[control.sign]}]{control.sign}[/] {control.name}"
            for control in results.controls
            if control.arm == arm
        ]
        if marks:
            lines.append(f"{escape(arm)} against {escape(reference)}: {'  '.join(marks)}")
    return lines
