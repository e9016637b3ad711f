"""Texts of a study: names become folders, titles stand on one line."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

# A folder's name has at most 255 bytes on the usual file systems, a character up to four, and
# `-tuning` may be appended to a study's.
MOST_NAME, MOST_TITLE, MOST_PROSE = 60, 200, 4000  # characters
# What is not a Char of https://www.w3.org/TR/xml/#charsets.
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_BREAKS = re.compile("[\t\n\r\u2028\u2029]")


def drawable(value: Any) -> Any:
    """Return a JSON value whose strings any figure can show.

    A figure's renderer aborts the process at a character that XML cannot hold: those are U+FFFD. A
    line break, which Vega's expressions cannot hold, is a space.
    """
    if isinstance(value, dict):
        return {drawable(key): drawable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [drawable(inner) for inner in value]
    if not isinstance(value, str):
        return value
    return _BREAKS.sub(" ", _NO_XML.sub("\N{REPLACEMENT CHARACTER}", value))


def _line(value: str) -> str:
    if _BREAKS.search(value):
        raise ValueError(f"{value!r:.60} has a line break; it is a single line of text")
    return value


def shortened(name: str, suffix: str = "") -> str:
    """Return `name` with `suffix`, its end left out where it would be too long."""
    return name[: MOST_NAME - len(suffix)] + suffix


Name = Annotated[
    str,
    # Any script is welcome; separators and control characters are not.
    Field(min_length=1, max_length=MOST_NAME, pattern=r"^[^/\\.\p{Cc}][^/\\\p{Cc}]*$"),
    AfterValidator(_line),
]
Title = Annotated[str, Field(max_length=MOST_TITLE), AfterValidator(_line)]
Prose = Annotated[str, Field(max_length=MOST_PROSE)]
