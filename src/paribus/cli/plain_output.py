"""Output that every terminal can show, whatever its encoding."""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
from collections.abc import Iterator

# Signs of tables and curves, of one column each, and what stands for them in ASCII. A control that
# is not proven is told by a question mark, so none of these may become one.
SIGNS = str.maketrans(
    dict(
        zip(
            "\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}\N{CHECK MARK}\N{BALLOT X}\N{RIGHTWARDS ARROW}"
            "\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}\N{NO-BREAK SPACE}\N{EN SPACE}"
            "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}",
            '---+x>x.  ""',
            strict=True,
        )
    )
    | {chr(0x2581 + height): str(height + 1) for height in range(8)}
    | {"\N{PLUS-MINUS SIGN}": "+-"}
)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters without an encoding: a sign, or a code such as `\\xe4`."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(SIGNS)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error("paribus", _plain)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Print another character meanwhile where an encoding lacks one."""
    streams = [one for one in (sys.stdout, sys.stderr) if isinstance(one, io.TextIOWrapper)]
    before = [one.errors for one in streams]
    for one in streams:
        one.reconfigure(errors="paribus")
    try:
        yield
    finally:
        for one, errors in zip(streams, before, strict=True):
            with contextlib.suppress(ValueError):  # it was closed meanwhile
                one.reconfigure(errors=errors)
