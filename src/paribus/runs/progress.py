"""How far a run is, from the events that workers report; nothing counts in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.results import ResultsFolder, needed_trials, read_looks
from paribus.runs.queue import Queue
from paribus.study import Study
from paribus.study.trainer import STACKED, Trial

MOST_NAMED = 3  # trials of a stack that a line of news names
Point = tuple[int, float | None]


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        n_trials, n_finished: trials of the study, and those that are finished.
        tokens, tokens_done: training tokens of the study, and those that have been trained on.
        tokens_before: those of `tokens_done` that earlier runs had done.
        began, heard: when the stage began, and the last event came (seconds since the epoch).
        unit: what is counted: "tokens", or "trials" of a trainer that counts no tokens.
        running: steps done and last training loss (nats/token) of each trial under way, by label.
        news: what has just happened, if worth a line.
        doing: what is done once every token has been trained on; empty before.
    """

    n_trials: int
    n_finished: int
    tokens: int
    tokens_done: int
    tokens_before: int
    running: dict[str, Point] = field(default_factory=dict)
    news: str = ""
    doing: str = ""
    unit: str = "tokens"
    began: float = field(default_factory=time.time)
    heard: float = field(default_factory=time.time)

    @property
    def tokens_per_second(self) -> float:
        """Over this run."""
        return (self.tokens_done - self.tokens_before) / max(time.time() - self.began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Of training, at the speed so far; None before there is one."""
        speed = self.tokens_per_second
        return (self.tokens - self.tokens_done) / speed if speed > 0 else None


Watch = Callable[[Progress], None]


class Tracker:
    """Adds up events of a run: of the study, or of the round of tuning that is under way.

    Attributes:
        progress: how far the stage under way is; None before the first.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue, self._read = queue, dict[str, int]()
        self._home: Path | None = None
        self._study: Study | None = None
        self._steps: dict[Trial, int] = {}
        self._seen: set[str] = set()
        self.progress: Progress | None = None

    def update(self) -> Iterator[dict[str, Any]]:
        """Read new events, and yield each in the order of time once it is added up."""
        for event in sorted(self._queue.events(self._read), key=lambda event: event.get("at", 0.0)):
            once = event.get("once")
            if once and once in self._seen:
                continue
            self._seen.add(once or "")
            self._hear(event)
            yield event

    @property
    def home(self) -> ResultsFolder | None:
        """The results folder of the stage under way."""
        return ResultsFolder(self._home) if self._home else None

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "stage":
            self._begin_stage(Path(event["home"]), event.get("at", time.time()))
            return
        progress = self.progress
        if progress is None:
            return
        progress.news, progress.heard = "", event.get("at", time.time())
        trials = [(arm, seed) for arm, seed in event.get("trials", [])]
        match kind:
            case "resumed":
                self._resume(progress, trials, event["t"])
            case "trained":
                losses = event["losses"]
                for trial, loss in zip(trials, losses, strict=True):
                    self._note_step(progress, trial, event["t"], loss)
            case "finished":
                self._finish(progress, trials)
            case "say":
                progress.doing = progress.news = event["words"]

    def _begin_stage(self, home: Path, at: float) -> None:
        """Count the trials of a stage; those of another stage are counted no more."""
        folder = ResultsFolder(home)
        study = folder.read_study()
        needed = needed_trials(study, read_looks(folder))
        if home != self._home or self.progress is None:
            self._steps = {}
            counts = study.trainer == STACKED
            unit = "tokens" if counts else "trials"
            self.progress = Progress(0, 0, 0, 0, 0, unit=unit, began=at)
        self._home, self._study = home, study
        progress = self.progress
        for trial in needed:
            if trial in self._steps:
                continue
            total = self._tokens(trial)
            is_finished = folder.trial(*trial).is_finished
            self._steps[trial] = 0
            progress.n_trials += 1
            progress.tokens += total
            if is_finished:
                progress.n_finished += 1
                progress.tokens_done += total
                progress.tokens_before += total
                self._steps[trial] = -1

    def _tokens(self, trial: Trial, t: int | None = None) -> int:
        """Return the tokens of a trial, or of its first t steps; 1 trial for other trainers."""
        assert self._study is not None and self.progress is not None
        if self.progress.unit == "trials":
            return 1 if t is None else 0
        setting = self._study.setting(trial[0])
        return setting.tokens if t is None else setting.tokens_before(t)

    def _left(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return those of a stack that are counted and not finished."""
        return [trial for trial in trials if self._steps.get(trial, -1) >= 0]

    def _resume(self, progress: Progress, trials: list[Trial], t: int) -> None:
        for trial in self._left(trials):
            change = self._tokens(trial, t) - self._tokens(trial, self._steps[trial])
            self._steps[trial] = t
            progress.tokens_done += change
            progress.tokens_before += change
            if progress.unit == "trials":
                progress.running[_label(trial)] = (t, None)

    def _note_step(self, progress: Progress, trial: Trial, t: int, loss: float | None) -> None:
        if not self._left([trial]):
            return
        progress.tokens_done += self._tokens(trial, t) - self._tokens(trial, self._steps[trial])
        self._steps[trial] = t
        progress.running[_label(trial)] = (t, loss)
        if progress.unit == "tokens" and progress.tokens_done >= progress.tokens:
            progress.doing = "evaluating the last trials"

    def _finish(self, progress: Progress, trials: list[Trial]) -> None:
        left = self._left(trials)
        for trial in left:
            progress.tokens_done += self._tokens(trial) - self._tokens(trial, self._steps[trial])
            self._steps[trial] = -1
            progress.running.pop(_label(trial), None)
        progress.n_finished += len(left)
        if progress.n_finished == progress.n_trials:
            progress.doing = ""
        progress.news = self._news(progress, left)

    def _news(self, progress: Progress, trials: list[Trial]) -> str:
        """Return a line on finished trials; with the score of a trial that counts no tokens."""
        if not trials:
            return ""
        names = ", ".join(map(_label, trials[:MOST_NAMED]))
        more = f" and {len(trials) - MOST_NAMED} more" if len(trials) > MOST_NAMED else ""
        if progress.unit == "tokens" or self._study is None or self.home is None:
            return f"{names}{more} finished"
        folder, name = self.home.trial(*trials[0]), self._study.primary.metric
        value = folder.read_json("evaluation.json").get(name)
        if value is not None:
            return f"{names} finished: {name} {value:.6g}"
        if failed := folder.read_json("trial.json").get("failed"):
            return f"{names} failed: {failed}"
        return f"{names} finished without a finite {name}"


def _label(trial: Trial) -> str:
    return f"{trial[0]}/seed-{trial[1]}"
