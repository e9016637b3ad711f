"""What the words of a study may consist of: they become folders, pages, figures and terminal lines.

Refused are control characters, what XML 1.0 has no place for (a figure's renderer aborts the whole
process at one), surrogates, and the characters that turn the direction of writing, with which a
text can be made to read otherwise than it is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from paribus.errors import ParibusError

# Unicode's property Bidi_Control (UAX 9).
DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# What is not a Char of https://www.w3.org/TR/xml/#charsets.
_FORBIDDEN = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ud800-\\udfff\\ufffe\\uffff]")
_BREAKS = re.compile("[\t\n\r\u2028\u2029]")
LINES = frozenset("\t\n")  # in running text, not in names and titles
SEPARATORS = frozenset("\u2028\u2029")

# A folder's name has at most 255 bytes on the usual file systems, and `-null` or the like may be
# appended to a study's.
MOST_NAME_BYTES = 240
MOST_NAME, MOST_TITLE, MOST_PROSE = 80, 200, 4000  # characters


def flaw(text: str, allowed: frozenset[str] = LINES) -> str:
    """Return the first character of `text` that nothing may hold, in words; empty where there is
    none."""
    for character in text:
        if character in allowed:
            continue
        kind = ""
        if unicodedata.category(character) == "Cc":
            kind = "the control character"
        elif _FORBIDDEN.match(character):
            kind = "the non-character"
        elif character in DIRECTION:
            kind = "the direction control"
        elif character in SEPARATORS and not allowed:
            kind = "the line separator"
        if kind:
            return f"{kind} U+{ord(character):04X}"
    return ""


def drawable(value: Any) -> Any:
    """Return a JSON value whose strings any figure can show.

    Each character that XML cannot hold is U+FFFD, and a line break, which Vega's expressions cannot
    hold, a space.
    """
    if isinstance(value, dict):
        return {drawable(key): drawable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [drawable(inner) for inner in value]
    if not isinstance(value, str):
        return value
    return _BREAKS.sub(" ", _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value))


def require_plain(table: Any) -> None:
    """Raise ParibusError where a key or value anywhere in a study's tables has a flaw."""
    waiting: list[tuple[str, Any]] = [("", table)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(name, str) and (found := flaw(name, frozenset())):
                    raise ParibusError(f"the key {name!r} has {found}; leave it out")
                waiting.append((f"{key}.{name}" if key else str(name), inner))
        elif isinstance(value, (list, tuple)):
            waiting += [(key, inner) for inner in value]
        elif isinstance(value, str) and (found := flaw(value)):
            raise ParibusError(f"{key} = {_short(value)} has {found}; leave it out")


def _name(value: str) -> str:
    if found := flaw(value, frozenset()):
        raise ValueError(f"{_short(value)} has {found}; leave it out")
    if len(value.encode()) > MOST_NAME_BYTES:
        raise ValueError(
            f"{_short(value)} has {len(value.encode())} bytes; it names a folder, and may have at "
            f"most {MOST_NAME_BYTES}"
        )
    return value


def _title(value: str) -> str:
    if found := flaw(value, frozenset()):
        raise ValueError(f"{_short(value)} has {found}; a title is a single line of text")
    return value


def _short(value: str, most: int = 60) -> str:
    return repr(value if len(value) <= most else f"{value[:most]}...")


Name = Annotated[
    str,
    # It names a folder; any script is welcome, separators are not.
    Field(min_length=1, max_length=MOST_NAME, pattern=r"^[^/\\.][^/\\]*$"),
    AfterValidator(_name),
]
Title = Annotated[str, Field(max_length=MOST_TITLE), AfterValidator(_title)]
Prose = Annotated[str, Field(max_length=MOST_PROSE)]
