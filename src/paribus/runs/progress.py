"""Progress of a run, computed from worker events, and its display.

A terminal shows a progress bar and the running trials. Other outputs get a line every ten seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from paribus import numbers
from paribus.results import ResultsFolder, needed_trials, read_looks
from paribus.runs.queue import Queue
from paribus.study.trainer import STACKED, Trial

PLAIN_SECONDS = 10.0
MOST_TRIALS_SHOWN = 12


class Progress:
    """Progress of a study, or of its current tuning round.

    Attributes:
        home: results folder.
        unit: "tokens", or "trials" for a trainer that does not count tokens.
        running: number of completed steps of each running trial, keyed by trial label.
        doing: current activity after training, such as evaluation, or "" during training.
    """

    def __init__(self, home: ResultsFolder, at: float) -> None:
        self.home, self._study = home, home.read_study()
        self.unit = "tokens" if self._study.trainer == STACKED else "trials"
        self.running: dict[str, int] = {}
        self.doing = ""
        self._began = at  # seconds since the epoch
        self._done: dict[Trial, int] = {}  # in the unit, of each trial up to the next look
        self._before: dict[Trial, int] = {}  # of that, by earlier runs
        self._finished: set[Trial] = set()

    @property
    def n_trials(self) -> int:
        """Number of trials up to the next interim analysis."""
        return len(self._done)

    @property
    def n_finished(self) -> int:
        """Number of finished trials up to the next interim analysis."""
        return len(self._finished)

    @property
    def tokens(self) -> int:
        """Number of training tokens in all trials up to the next interim analysis."""
        return sum(map(self._tokens, self._done))

    @property
    def tokens_done(self) -> int:
        """Number of training tokens processed so far."""
        return sum(self._done.values())

    @property
    def tokens_per_second(self) -> float:
        """Training throughput in tokens per second, averaged over this run."""
        done = self.tokens_done - sum(self._before.values())
        return done / max(time.time() - self._began, 1e-9)

    def count_trials(self) -> None:
        """Add all trials up to the next interim analysis that are not included yet."""
        for trial in needed_trials(self._study, read_looks(self.home)):
            if trial not in self._done:
                is_finished = self.home.trial(*trial).is_finished
                if is_finished:
                    self._finished.add(trial)
                self._done[trial] = self._before[trial] = self._tokens(trial) * is_finished

    def add(self, event: dict[str, Any]) -> None:
        """Update the progress with an event reported by a worker."""
        kind, t = event["event"], event.get("t")
        if kind == "say":
            self.doing = event["words"]
        if kind not in ("resumed", "trained", "finished"):
            return
        trials = [(arm, seed) for arm, seed in event["trials"]]
        left = [trial for trial in trials if trial in self._done and trial not in self._finished]
        for trial in left:
            self._done[trial] = self._tokens(trial, t)
            if kind == "resumed":
                self._before[trial] = self._done[trial]
            if kind == "finished":
                self._finished.add(trial)
                self.running.pop(_label(trial), None)
            elif kind == "trained" or self.unit == "trials":
                self.running[_label(trial)] = t or 0
        if kind == "finished" and left:
            self.doing = "" if self.n_finished == self.n_trials else self.doing
        if kind == "trained" and self.unit == "tokens" and self.tokens_done >= self.tokens:
            self.doing = "evaluating the last trials"

    def _tokens(self, trial: Trial, t: int | None = None) -> int:
        """Return the number of tokens in a trial, or in its first `t` steps.

        If the unit is trials, return 1 for a whole trial and 0 for its first steps.
        """
        if self.unit == "trials":
            return 1 if t is None else 0
        setting = self._study.setting(trial[0])
        return setting.tokens if t is None else setting.tokens_before(t)

    def summary(self) -> str:
        """Format counts, speed and remaining time as a one-line summary."""
        parts, speed = [f"{self.n_finished}/{self.n_trials} trials"], self.tokens_per_second
        if self.unit == "tokens":
            parts.append(f"{self.tokens_done / max(self.tokens, 1):.0%} of tokens")
            parts.append(f"{speed:,.0f} tokens/s")
        if self.doing:
            parts.append(self.doing)
        elif speed > 0 and (left := self.tokens - self.tokens_done):
            parts.append(f"{numbers.duration(left / speed)} left")
        return ", ".join(parts)


def _label(trial: Trial) -> str:
    return f"{trial[0]}/seed-{trial[1]}"


Watch = Callable[[Progress], None]


class Tracker:
    """Tracker of a run's progress, which reads the events in a queue.

    Attributes:
        progress: progress of the current stage, or None before the first stage.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue, self._read = queue, dict[str, int]()
        self._seen: set[str] = set()
        self.progress: Progress | None = None

    def update(self) -> Iterator[dict[str, Any]]:
        """Add new events to the progress, and yield them in chronological order."""
        for event in sorted(self._queue.events(self._read), key=lambda event: event["at"]):
            if (once := event.get("once")) and once in self._seen:
                continue
            self._seen.add(once or "")
            if event["event"] == "stage":
                home = ResultsFolder(self._queue.path.parent / event["home"])
                if self.progress is None or self.progress.home.path != home.path:
                    self.progress = Progress(home, event["at"])
                self.progress.count_trials()
            elif self.progress is not None:
                self.progress.add(event)
            yield event


def read_progress(results: Path) -> Progress | None:
    """Read the progress of the run in a results folder, or return None if no run is active."""
    tracker = Tracker(Queue.locate(results))
    for _ in tracker.update():
        pass
    return tracker.progress


@contextmanager
def watching(console: Console, before: str = "") -> Iterator[Watch]:
    """Display progress, and yield the `watch` callback, whose first call prints `before`."""
    last, shown = time.monotonic(), None

    def watch(progress: Progress) -> None:
        nonlocal last, shown
        if shown is None:
            console.print(before, end="\n" if before else "")
            shown = ("", False)
        live.update(picture(progress))
        state = (progress.doing, progress.n_finished == progress.n_trials)
        if state != shown or time.monotonic() - last >= PLAIN_SECONDS:
            if not console.is_terminal:
                console.print(escape(progress.summary()), soft_wrap=True)
            last, shown = time.monotonic(), state

    starting = Spinner("dots", "starting workers and testing one step of every arm")
    with Live(starting, console=console, transient=True) as live:
        yield watch


def picture(progress: Progress) -> Group:
    """Render a progress bar, the summary, and the steps of running trials."""
    bar, running = Table.grid(), Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(progress.tokens, progress.tokens_done, width=72))
    rows = list(progress.running.items())
    for label, t in rows[:MOST_TRIALS_SHOWN]:
        running.add_row(f"  {escape(label)}", f"step {t}")
    if n_more := len(rows[MOST_TRIALS_SHOWN:]):
        running.add_row(f"  and {n_more} more")
    return Group(bar, escape(progress.summary()), running)
