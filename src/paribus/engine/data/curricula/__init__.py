"""What documents are sorted by for a curriculum, one idea a file behind one decorator.

A key is a pure function of a document's text to a number; the least comes first. A file put into
this folder is found by itself, and the user's own is named by its import path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paribus.declared import declared
from paribus.errors import ParibusError
from paribus.study.choices import require_declared
from paribus.study.importing import load_own


@dataclass(frozen=True)
class CurriculumKey:
    """A key and what it declares.

    Attributes:
        name: the value of `data.curriculum`.
        about: what it is, and what comes first.
        of: from the text of a document to a number.
    """

    name: str
    about: str
    of: Callable[[str], float]


def curriculum_key(
    name: str, *, about: str = ""
) -> Callable[[Callable[[str], float]], CurriculumKey]:
    """Make the decorated function the key `name`."""
    return lambda of: CurriculumKey(name, about, of)


@cache
def all_keys() -> dict[str, CurriculumKey]:
    """Every key of this folder, by name."""
    return declared(__name__, CurriculumKey)


def find_key(name: str, folder: Path) -> Callable[[str], float]:
    """The key `name`, checked as it is used; files of the user's own start at `folder`.

    Raises ParibusError for an unknown one, and where it fails or gives no finite number.
    """
    if ":" in name:
        found = load_own(name, f"data.curriculum = '{name}'", "curriculum key", _is_key, folder)
        of = found.of if isinstance(found, CurriculumKey) else found
    else:
        of = require_declared(name, all_keys(), "data.curriculum", "curriculum key", __name__).of

    def checked(text: str) -> float:
        try:
            value = float(of(text))
        except Exception as error:
            raise ParibusError(
                f"data.curriculum = '{name}' fails: {type(error).__name__}: {error}"
            ) from error
        if not math.isfinite(value):
            raise ParibusError(
                f"data.curriculum = '{name}' gives {value} for a document of {len(text):,} "
                "characters; documents are sorted by finite numbers"
            )
        return value

    return checked


def _is_key(value: object) -> bool:
    return isinstance(value, CurriculumKey) or (callable(value) and not isinstance(value, type))
