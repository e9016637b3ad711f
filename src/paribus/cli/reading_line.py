"""How far the reading of a long text is, in one line of the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


def reading(what: str, n_bytes: int) -> str:
    """`tokenizing: 120 MB`."""
    return f"{what}: {n_bytes / 1e6:,.0f} MB" if n_bytes else what


@contextlib.contextmanager
def show_reading() -> Iterator[None]:
    """While it lasts, long texts say how far they are; where nobody watches, nothing is said."""
    if not sys.stderr.isatty():
        yield
        return
    from paribus.engine.data.reading_progress import listening

    shown = False

    def tell(what: str, n_bytes: int) -> None:
        nonlocal shown
        print(f"\r\x1b[K{reading(what, n_bytes)}", end="", file=sys.stderr, flush=True)
        shown = True

    try:
        with listening(tell):
            yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
