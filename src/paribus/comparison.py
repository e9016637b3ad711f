"""Comparison of what was written with what follows from its sources, on any machine.

What is discrete (counts, names, outcomes, digests) must be equal. Numbers in floating point may
differ by rounding: processors add in other orders, and their exponentials differ in the last bit.
Over all kept studies and the processors that were tried, the largest difference was 3e-13 of the
value. `RELATIVE` leaves room for problems that are worse conditioned, and is a thousandth of the
last digit that is ever printed (six): a change that a reader could see is found. A difference of
two arms may be near 0 beside scores that are not, so that a number is held against the SD beside it
as well. Sentences are not compared: better words do not make an old file wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any, TypeGuard

RELATIVE = 1e-9  # of a number, or of the SD, the mean or the width of the interval beside it
LEAST = 1e-12  # of what is 0 but for rounding
MOST_INTEGER = 2**63  # a larger one is no count


def differences(
    stated: Any, fresh: Any, words: Collection[str] = (), *, key: str = "", size: float = 0.0
) -> Iterator[str]:
    """Yield the dotted keys at which two values of JSON types differ by more than rounding.

    Args:
        words: keys of texts, which are not compared.
        size: the largest mean, SD or width of an interval in the tables around.
    """
    if isinstance(stated, dict) and isinstance(fresh, dict):
        size = _size(fresh) or size
        for name in sorted(stated.keys() | fresh.keys()):
            inner = f"{key}.{name}" if key else str(name)
            if name not in stated or name not in fresh:
                yield inner
            elif not (name in words and _is_text(stated[name]) and _is_text(fresh[name])):
                yield from differences(stated[name], fresh[name], words, key=inner, size=size)
    elif isinstance(stated, list | tuple) and isinstance(fresh, list | tuple):
        if len(stated) != len(fresh):
            yield key
            return
        for i, (before, after) in enumerate(zip(stated, fresh, strict=True)):
            inner = f"{key}.{i}" if key else str(i)
            yield from differences(before, after, words, key=inner, size=size)
    elif _is_number(stated) and _is_number(fresh) and float in (type(stated), type(fresh)):
        if not abs(stated - fresh) <= max(RELATIVE * max(abs(stated), abs(fresh), size), LEAST):
            yield key
    elif type(stated) is not type(fresh) or stated != fresh:  # two integers are counts
        yield key


def agree(stated: Any, fresh: Any) -> bool:
    """Return whether two values of JSON types are equal up to rounding."""
    return not any(True for _ in differences(stated, fresh))


def _size(table: dict[str, Any]) -> float:
    """Return the largest of the mean, the SD and the width of the interval of a table."""
    sizes = [abs(table[key]) for key in ("mean", "sd") if _is_number(table.get(key))]
    if _is_number(table.get("low")) and _is_number(table.get("high")):
        sizes.append(table["high"] - table["low"])
    return float(max(sizes, default=0))


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_INTEGER


def _is_text(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_text, value)))
