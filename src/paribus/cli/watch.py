"""`paribus status DIR --follow`: a study under way, seen from another terminal."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid

from paribus import numbers
from paribus.cli.folder_verbs import running_jobs
from paribus.cli.printed import jobs as printed_jobs
from paribus.cli.printed import marked, rounds, standing
from paribus.report.table_model import Table
from paribus.results import Results, ResultsFolder, load_results, needed_trials, read_looks
from paribus.results.live import read_live
from paribus.study import is_untuned

SECONDS = 2.0
JOBS_SECONDS = 10.0  # between two questions to a scheduler
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 28  # of a sparkline, in characters

Curve = list[tuple[int, float]]

if TYPE_CHECKING:
    from paribus.engine.execution.jobs.standing import JobRow


def watch(folder: Path, console: Console) -> None:
    """Show the study in `folder` until it is finished; without a terminal, once.

    A folder that is not there yet is waited for. Ctrl-C ends it: nothing is lost by it.
    """
    with contextlib.suppress(KeyboardInterrupt):
        _wait_for(folder, console)
        view = _View(folder)
        if not console.is_terminal:
            console.print(view.picture())
            return
        with Live(view.picture(), console=console, refresh_per_second=2) as live:
            while not view.is_done:
                time.sleep(SECONDS)
                live.update(view.picture())


def _wait_for(folder: Path, console: Console) -> None:
    """Return once there is a study in `folder`, or something else is."""
    if _is_to_come(folder):
        where = escape(str(folder))
        console.print(f"waiting for a study in {where}; Ctrl-C ends this", soft_wrap=True)
        for part in printed_jobs(running_jobs(folder)):
            console.print(part)
    while _is_to_come(folder):
        time.sleep(SECONDS / 4)


def _is_to_come(folder: Path) -> bool:
    """Tell if a run may still begin there: no folder, or one with hidden files alone."""
    if ResultsFolder(folder).exists:
        return False
    if not folder.exists():
        return True
    return folder.is_dir() and all(path.name[0] == "." for path in folder.iterdir())


class _View:
    """The records read so far; finished trials are read again only when there are more of them."""

    def __init__(self, folder: Path) -> None:
        self._home = self._folder = ResultsFolder(folder)
        self._study = self._home.read_study()
        self._n_finished = -1
        self._results: Results | None = None
        self.is_done = False
        self._asked, self._rows = -JOBS_SECONDS, list["JobRow"]()

    def _turn(self) -> bool:
        """Turn to the round of tuning under way or the study itself; return if arms are tuned."""
        study = self._home.read_study()
        tuning = is_untuned(study)
        here = (self._home.tuning_rounds if tuning else [])[-1:] or [self._home]
        changed = here[0] is self._home and study != self._study
        if here[0].path != self._folder.path or changed:
            self._study = study if here[0] is self._home else here[0].read_study()
            self._folder, self._n_finished = here[0], -1
        return not tuning

    def picture(self) -> Group:
        is_tuned = self._turn()
        needed = needed_trials(self._study, read_looks(self._folder))
        trials = [self._folder.trial(arm, seed) for arm, seed in needed]
        n_finished = sum(trial.is_finished for trial in trials)
        if n_finished != self._n_finished or self._results is None:
            self._results, self._n_finished = load_results(self._folder.path), n_finished
        live = read_live(self._folder.path)
        self.is_done = is_tuned and n_finished == len(trials) and live is None
        bar = Grid.grid()
        total = live["tokens"] if live else len(trials)
        bar.add_row(ProgressBar(total, live["tokens_done"] if live else n_finished, width=72))
        return Group(
            f"[bold]{escape(self._study.title or self._study.name)}[/]",
            bar,
            _summary(n_finished, len(trials), live),
            _arms(self._results, live),
            *standing(self._results),
            *rounds(self._home),
            *_controls(self._results),
            *printed_jobs(self._jobs()),
        )

    def _jobs(self) -> list[JobRow]:
        """Return the jobs of the run, asked for every JOBS_SECONDS."""
        if time.monotonic() - self._asked >= JOBS_SECONDS:
            self._asked, self._rows = time.monotonic(), running_jobs(self._home.path)
        return self._rows


def _summary(n_finished: int, n_trials: int, live: dict[str, Any] | None) -> str:
    done = f"{n_finished}/{n_trials} trials"
    if live is None:
        return done if n_finished == n_trials else f"{done}; no run is under way"
    left = live["seconds_left"]
    age = time.time() - live["written_at"]
    counts = live.get("unit", "tokens") == "tokens"
    parts = [done, f"{live['tokens_per_second']:,.0f} tokens/s"] if counts else [done]
    if live["doing"]:
        parts.append(live["doing"])
    elif left is not None:
        parts.append(f"{numbers.duration(left)} left")
    parts += [f"[yellow]last heard of {numbers.duration(age)} ago[/]"] if age > 60 else []
    return ", ".join(parts)


def _arms(results: Results, live: dict[str, Any] | None) -> Table:
    study, rows = results.study, []
    running: dict[str, Curve] = {
        label: [(t, loss) for t, loss in curve if loss is not None]
        for label, curve in (live["running"] if live else {}).items()
    }
    # One scale for all arms, so that their lines can be compared.
    curves = {arm: _curves(results, arm, running) for arm in study.arms}
    values = [loss for of_arm in curves.values() for curve in of_arm for _, loss in curve]
    for arm in study.arms:
        needed = [folder.label for folder in (*results.finished, *results.unfinished)]
        labels = [label for label in needed if label.rsplit("/", 1)[0] == arm]
        now = sum(label in running for label in labels)
        done = sum(folder.arm == arm for folder in results.finished)
        last_step = max((t for curve in curves[arm] for t, _ in curve), default=1) or 1
        mean = _mean_curve(curves[arm], study.format.steps(study, arm) or last_step)
        last = next((loss for loss in reversed(mean) if loss is not None), None)
        line = sparkline(mean, min(values), max(values)) if values else ""
        rows.append((arm, f"{done}/{len(labels)}", str(now), numbers.fixed(last, 3), line))
    curve = "training loss, mean of seeds"
    head = ("arm", "done", "now", "loss", curve)
    return Table("arms", "", head, rows, frozenset({"arm", curve}))


def _curves(results: Results, arm: str, running: dict[str, Curve]) -> list[Curve]:
    finished = [
        list(zip(steps["step"].to_pylist(), steps["train_loss"].to_pylist(), strict=True))
        for (name, _), steps in results.trial_steps.items()
        if name == arm
    ]
    under_way = [curve for label, curve in running.items() if label.rsplit("/", 1)[0] == arm]
    return [[(t, x) for t, x in curve if x is not None] for curve in (*finished, *under_way)]


def _mean_curve(curves: list[Curve], iterations: int) -> list[float | None]:
    """Return the mean loss [WIDTH] of each part of the run, None where no trial has come to it."""
    parts: list[list[float]] = [[] for _ in range(WIDTH)]
    for curve in curves:
        for t, loss in curve:
            parts[max(min((t - 1) * WIDTH // iterations, WIDTH - 1), 0)].append(loss)
    return [float(np.mean(part)) if part else None for part in parts]


def sparkline(values: list[float | None], low: float, high: float) -> str:
    """Return a bar of eighths for each value between `low` and `high`; a space without one."""
    step = (high - low) / (len(BARS) - 1) or 1.0
    return "".join(" " if x is None else BARS[round((x - low) / step)] for x in values).rstrip()


def _controls(results: Results) -> list[str]:
    """Return a line for each contrast: which controls hold so far."""
    lines = []
    for arm, reference in results.study.contrasts:
        marks = [
            f"{marked(control.sign)} {control.name}"
            for control in results.controls
            if control.arm == arm
        ]
        if marks:
            lines.append(f"{escape(arm)} against {escape(reference)}: {'  '.join(marks)}")
    return lines
