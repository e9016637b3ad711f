"""Text types of a study: names that can be folders, single-line titles, prose."""

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
    """Return a JSON value with strings that any figure can render.

    Characters that XML cannot hold abort the renderer's process, so they become U+FFFD. Line
    breaks are invalid in Vega's expressions, so they become spaces.
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
        raise ValueError(f"{value!r:.60} has a line break; use a single line of text")
    return value


def shortened(name: str, suffix: str = "") -> str:
    """Return `name` with `suffix`, with `name` truncated to the allowed length."""
    return name[: MOST_NAME - len(suffix)] + suffix


Name = Annotated[
    str,
    # Any script is welcome; separators and control characters are not.
    Field(min_length=1, max_length=MOST_NAME, pattern=r"^[^/\\.\p{Cc}][^/\\\p{Cc}]*$"),
    AfterValidator(_line),
]
Title = Annotated[str, Field(max_length=MOST_TITLE), AfterValidator(_line)]
Prose = Annotated[str, Field(max_length=MOST_PROSE)]
