"""Progress of reading a long text, for whoever listens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

EVERY_SECONDS = 0.5

# (the action, bytes of text so far)
Listener = Callable[[str, int], None]

_listeners: list[Listener] = []
_last = 0.0


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` every half second while texts are read, first after half a second."""
    global _last
    _last = time.monotonic()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def note(doing: str, n_bytes: int) -> None:
    """Call the listeners, at most every half second."""
    global _last
    if _listeners and time.monotonic() - _last >= EVERY_SECONDS:
        _last = time.monotonic()
        for listener in _listeners:
            listener(doing, n_bytes)
