"""Characters that texts of a study may have, which become folders, pages and figures.

Refused are control characters, what XML 1.0 has no place for (a figure's renderer aborts the whole
process at one), surrogates, and the characters that turn the direction of writing, with which a
text can be made to read otherwise than it is.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from paribus.errors import ParibusError

# Unicode's property Bidi_Control (UAX 9).
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# What is not a Char of https://www.w3.org/TR/xml/#charsets.
_NO_XML = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_FORBIDDEN = re.compile(f"[{_NO_XML}{_DIRECTION}\r\x7f-\x9f]")
_FORBIDDEN_IN_LINES = re.compile(f"[{_NO_XML}{_DIRECTION}\t\n\r\x7f-\x9f\u2028\u2029]")
_BREAKS = re.compile("[\t\n\r\u2028\u2029]")

# A folder's name has at most 255 bytes on the usual file systems, and `-tuning` may be appended to
# a study's.
MOST_NAME_BYTES = 240
MOST_NAME, MOST_TITLE, MOST_PROSE = 80, 200, 4000  # characters


def _flaw(text: str, forbidden: re.Pattern[str] = _FORBIDDEN) -> str:
    """Return the first forbidden character of `text`, or ""."""
    match = forbidden.search(text)
    return f"the character U+{ord(match[0]):04X}" if match else ""


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
    return _BREAKS.sub(" ", re.sub(f"[{_NO_XML}]", "\N{REPLACEMENT CHARACTER}", value))


def require_plain(table: Any, key: str = "") -> None:
    """Raise ParibusError where a key or value anywhere in a study's tables has a flaw."""
    if isinstance(table, dict):
        for name, inner in table.items():
            if flaw := _flaw(str(name), _FORBIDDEN_IN_LINES):
                raise ParibusError(f"the key {name!r} has {flaw}; leave it out")
            require_plain(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(table, (list, tuple)):
        for inner in table:
            require_plain(inner, key)
    elif isinstance(table, str) and (flaw := _flaw(table)):
        raise ParibusError(f"{key} = {table!r:.60} has {flaw}; leave it out")


def _title(value: str) -> str:
    if flaw := _flaw(value, _FORBIDDEN_IN_LINES):
        raise ValueError(f"{value!r:.60} has {flaw}; it is a single line of text")
    return value


def _name(value: str) -> str:
    n_bytes = len(_title(value).encode())
    if n_bytes > MOST_NAME_BYTES:
        raise ValueError(
            f"{value!r:.60} has {n_bytes} bytes; it names a folder, and may have at most "
            f"{MOST_NAME_BYTES}"
        )
    return value


def shortened(name: str, suffix: str) -> str:
    """Return `name` with `suffix`, its end left out where it would be too long."""
    while len(name) + len(suffix) > MOST_NAME or len((name + suffix).encode()) > MOST_NAME_BYTES:
        name = name[:-1]
    return name + suffix


Name = Annotated[
    str,
    # It names a folder; any script is welcome, separators are not.
    Field(min_length=1, max_length=MOST_NAME, pattern=r"^[^/\\.][^/\\]*$"),
    AfterValidator(_name),
]
Title = Annotated[str, Field(max_length=MOST_TITLE), AfterValidator(_title)]
Prose = Annotated[str, Field(max_length=MOST_PROSE)]
