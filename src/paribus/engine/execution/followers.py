"""Where a run stands, and everyone who is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paribus.engine.execution.live import Live
from paribus.engine.execution.sinks import Sinks
from paribus.results import TrialFolder


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        n_trials, n_finished: trials of the study, and those that are finished.
        tokens, tokens_done: training tokens of the study, and those that have been trained on.
        tokens_before: those of `tokens_done` that earlier runs had done.
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
    _began: float = field(default_factory=time.monotonic)

    @property
    def tokens_per_second(self) -> float:
        """Over this run."""
        return (self.tokens_done - self.tokens_before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Of training, at the speed so far; None before there is one."""
        speed = self.tokens_per_second
        return (self.tokens - self.tokens_done) / speed if speed > 0 else None


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Followers:
    """Everyone who hears of a run."""

    watch: Watch | None
    live: Live
    sinks: Sinks

    def progress(self, progress: Progress) -> None:
        """The run stands elsewhere than before."""
        self.live.note(progress)
        if self.watch:
            self.watch(progress)

    def step(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """A trial has done `t` steps."""
        self.sinks.progress(arm, seed, t, loss)

    def finished(self, trial: TrialFolder) -> None:
        """A trial is finished."""
        self.sinks.finished(trial)

    def close(self) -> None:
        """The run is over."""
        self.live.close()
        self.sinks.close()
