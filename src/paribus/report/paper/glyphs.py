"""Which characters the fonts at hand can show: typst sets an empty box for others and says nothing.

Fonts that come with typst have Latin, Greek, Cyrillic, Hebrew and Arabic. Only where a study uses
other scripts are the fonts of this machine looked at, so that all other papers are the same
everywhere; and what no font has is written by its code point, such as [U+57FA].
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

import typst

NO_CHARACTER = "\U0010fffd"  # private use: no font has it
PAGES = b"""
#set page(width: auto, height: auto)
#set text(font: ("Libertinus Serif", "DejaVu Sans Mono"))
#for character in sys.inputs.characters.codepoints() { page(text(character)) }
"""


def lacking(characters: Iterable[str], *, system: bool) -> set[str]:
    """Those that neither typst's own fonts nor, if `system`, this machine's can show."""
    asked = [c for c in sorted(set(characters)) if unicodedata.category(c)[0] not in "ZCM"]
    if not asked:
        return set()
    drawn: Any = typst.compile(
        PAGES,
        format="svg",
        sys_inputs={"characters": NO_CHARACTER + "".join(asked)},
        ignore_system_fonts=not system,
    )
    empty, *pages = drawn  # bytes, one of each page
    return {c for c, page in zip(asked, pages, strict=True) if page == empty or b"<use" not in page}


def spelled(text: str, characters: set[str]) -> str:
    """`text` with each of `characters` by its code point."""
    return "".join(f"[U+{ord(c):04X}]" if c in characters else c for c in text)
