"""How long a call may take, and how many trials it may train: then it stops as if interrupted."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from paribus.errors import ParibusError, require_positive

if TYPE_CHECKING:
    from paribus.engine.execution.following import Progress, Watch

EXIT = 4
UNITS = {"s": 1, "m": 60, "h": 3600}


class Spent(KeyboardInterrupt):
    """What the call may use is used up; workers write checkpoints, as after Ctrl-C."""


@dataclass
class _Count:
    """Trials finished since the call began; `of` is the run that was heard of last."""

    finished: int = 0
    of: Any = None
    last: int = 0


@Parameter(name="*")
@dataclass(frozen=True)
class Limits:
    """What one call may use; the same command goes on where it stopped."""

    budget: Annotated[
        str | None,
        Parameter(help="Stop after so long, such as 90s, 10m or 2h, with exit code 4."),
    ] = None
    max_trials: Annotated[
        int | None,
        Parameter(help="Stop once so many more trials are finished, with exit code 4."),
    ] = None
    count: Annotated[_Count, Parameter(parse=False)] = field(default_factory=_Count)

    def __post_init__(self) -> None:
        """Raise ParibusError for what is no limit."""
        require_positive(max_trials=self.max_trials)
        _ = self.seconds

    @property
    def seconds(self) -> float | None:
        """The budget in seconds; None without one. Raises ParibusError."""
        if self.budget is None:
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", self.budget)
        if not match or not float(match[1]):
            raise ParibusError(
                f"--budget {self.budget} must be a number and a unit, such as 90s, 10m or 2h"
            )
        return float(match[1]) * UNITS[match[2]]

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        """Raise `Spent` in the body once the budget of time is used up."""
        seconds = self.seconds
        if seconds is None:
            yield
            return
        if threading.current_thread() is not threading.main_thread():
            raise ParibusError("--budget needs the main thread; leave it out")

        def ring(*_: object) -> None:
            raise Spent(f"--budget {self.budget} is used up")

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def counting(self, watch: Watch) -> Watch:
        """Return `watch`, which raises `Spent` once as many trials are finished as may be."""
        most, count = self.max_trials, self.count
        if most is None:
            return watch

        def heard(progress: Progress) -> None:
            watch(progress)
            if progress is not count.of:
                count.of, count.last = progress, progress.n_finished
            count.finished += progress.n_finished - count.last
            count.last = progress.n_finished
            # With all finished, what is left to do trains nothing.
            if count.finished >= most and progress.n_finished < progress.n_trials:
                raise Spent(f"--max-trials {most} are finished")

        return heard
