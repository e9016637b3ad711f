"""A worker that is asked to leave: it finishes its training step, and nothing else.

It is asked by SIGTERM, or by the end of its input: who started it is gone, or wants no more.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Left(BaseException):
    """Raised wherever a worker is when it is asked to leave, unless it holds on to something.

    No `Exception`: neither a library nor a user's own module may go on after it.
    """


class Leaving:
    """Whether this process was asked to leave."""

    def __init__(self) -> None:
        self.asked = False
        self._holding = 0

    def listen(self) -> None:
        """Take SIGTERM as the request; from the main thread."""
        signal.signal(signal.SIGTERM, self._hear)

    def request(self) -> None:
        """Ask, from another thread."""
        main = threading.main_thread().ident
        if hasattr(signal, "pthread_kill") and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)  # wakes it where it sleeps, too
        else:
            signal.raise_signal(signal.SIGTERM)

    def check(self) -> None:
        """Raise Left where it was asked meanwhile."""
        if self.asked:
            raise Left

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within, nothing is raised; `asked` has to be looked at."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self._holding:
            raise Left
