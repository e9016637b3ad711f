"""Progress of a run, from the events that workers report; it changes no result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.results import ResultsFolder, needed_trials, read_looks
from paribus.runs.queue import Queue
from paribus.study.trainer import STACKED, Trial

MOST_NAMED = 3  # trials of a stack that a line of news names


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
    running: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    news: str = ""
    doing: str = ""
    unit: str = "tokens"
    began: float = field(default_factory=time.time)
    heard: float = field(default_factory=time.time)

    @property
    def tokens_per_second(self) -> float:
        """Training tokens per second over this run."""
        return (self.tokens_done - self.tokens_before) / max(time.time() - self.began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Seconds of training left at the speed so far; None before the first step."""
        speed = self.tokens_per_second
        return (self.tokens - self.tokens_done) / speed if speed > 0 else None


Watch = Callable[[Progress], None]


class Tracker:
    """Adds up events of a run: of the study, or of the round of tuning that is under way.

    Attributes:
        progress: how far the stage under way is; None before the first.
        home: the results folder of the stage under way.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue, self._read = queue, dict[str, int]()
        self._done: dict[Trial, int] = {}
        """Tokens done of each trial that is not finished."""
        self._seen: set[str] = set()
        self.progress: Progress | None = None
        self.home: ResultsFolder | None = None

    def update(self) -> Iterator[dict[str, Any]]:
        """Read new events, and yield each in the order of time once it is added up."""
        for event in sorted(self._queue.events(self._read), key=lambda event: event.get("at", 0.0)):
            once = event.get("once")
            if once and once in self._seen:
                continue
            self._seen.add(once or "")
            if event["event"] == "stage":
                self._begin_stage(ResultsFolder(Path(event["home"])), event["at"])
            elif self.progress is not None:
                self._add(self.progress, event)
            yield event

    def _begin_stage(self, home: ResultsFolder, at: float) -> None:
        """Count the trials of a stage; those of another stage are counted no more."""
        self._study = home.read_study()
        unit = "tokens" if self._study.trainer == STACKED else "trials"
        progress = self.progress
        if progress is None or self.home is None or self.home.path != home.path:
            self.progress = progress = Progress(0, 0, 0, 0, 0, unit=unit, began=at)
            self._counted: set[Trial] = set()
            self._done = {}
        self.home = home
        for trial in needed_trials(self._study, read_looks(home)):
            if trial in self._counted:
                continue
            self._counted.add(trial)
            total = self._tokens(trial)
            progress.n_trials += 1
            progress.tokens += total
            if home.trial(*trial).is_finished:
                progress.n_finished += 1
                progress.tokens_done += total
                progress.tokens_before += total
            else:
                self._done[trial] = 0

    def _tokens(self, trial: Trial, t: int | None = None) -> int:
        """Return the tokens of a trial, or of its first t steps; 1 trial for other trainers."""
        if self._study.trainer != STACKED:
            return 1 if t is None else 0
        setting = self._study.setting(trial[0])
        return setting.tokens if t is None else setting.tokens_before(t)

    def _add(self, progress: Progress, event: dict[str, Any]) -> None:
        kind, t = event["event"], event.get("t")
        progress.news, progress.heard = "", event.get("at", time.time())
        if kind == "say":
            progress.doing = progress.news = event["words"]
        if kind not in ("resumed", "trained", "finished"):
            return
        trials = [(arm, seed) for arm, seed in event["trials"]]
        losses = dict(zip(trials, event.get("losses", ()), strict=False))
        left = [trial for trial in trials if trial in self._done]
        for trial in left:
            label, done = _label(trial), self._tokens(trial, t)
            progress.tokens_done += done - self._done[trial]
            if kind == "resumed":
                progress.tokens_before += done - self._done[trial]
            self._done[trial] = done
            if kind == "trained" or (kind == "resumed" and progress.unit == "trials"):
                progress.running[label] = (t or 0, losses.get(trial))
            elif kind == "finished":
                del self._done[trial]
                progress.running.pop(label, None)
                progress.n_finished += 1
        if kind == "finished":
            progress.doing = "" if progress.n_finished == progress.n_trials else progress.doing
            progress.news = self._news(progress, left)
        all_trained = progress.tokens_done >= progress.tokens
        if kind == "trained" and left and all_trained and progress.unit == "tokens":
            progress.doing = "evaluating the last trials"

    def _news(self, progress: Progress, trials: list[Trial]) -> str:
        """Return a line on finished trials; with the score of a trial that counts no tokens."""
        if not trials:
            return ""
        names = ", ".join(map(_label, trials[:MOST_NAMED]))
        rest = f" and {len(trials) - MOST_NAMED} more" if len(trials) > MOST_NAMED else ""
        if progress.unit == "tokens" or self.home is None:
            return f"{names}{rest} finished"
        folder, name = self.home.trial(*trials[0]), self._study.primary.metric
        value = folder.read_json("evaluation.json").get(name)
        if value is not None:
            return f"{names} finished: {name} {value:.6g}"
        if failed := folder.read_json("trial.json").get("failed"):
            return f"{names} failed: {failed}"
        return f"{names} finished without a finite {name}"


def _label(trial: Trial) -> str:
    return f"{trial[0]}/seed-{trial[1]}"
