"""Comparison of what was written with what follows from its sources, on any machine.

What is discrete (counts, names, outcomes, digests) must be equal. Numbers in floating point may
differ by rounding: processors add in other orders, and their exponentials differ in the last bit.
Over all kept studies and the processors that were tried, the largest difference was 3e-13 of the
value. `RELATIVE` leaves room for problems that are worse conditioned, and is a thousandth of the
last digit that is ever printed (six): a change that a reader could see is found. A difference of
two arms may be near 0 beside scores that are not, so it is held against its SD as well. Sentences
are not compared: better words do not make an old file wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeGuard

RELATIVE = 1e-9  # of a number; of one in units of an endpoint also of the SD of the differences
LEAST = 1e-12  # of the largest number beside it: of what is 0 but for rounding
# Keys of numbers that are held against the SD of the paired differences that they are about, ...
IN_UNITS = frozenset({"delta", "detectable", "high", "low", "mean"})
# ... and those in units of that SD.
STANDARDIZED = frozenset({"correlation", "effect"})
MOST_INTEGER = 2**63  # a larger one is no count


@dataclass
class Comparison:
    """Differences of two nested values, and how far apart their equal numbers are.

    Attributes:
        differing: dotted keys of what differs.
        numbers: how many floating-point values were compared.
        largest: the largest difference of two that agree, relative to the number or to the SD.
    """

    differing: list[str] = field(default_factory=list)
    numbers: int = 0
    largest: float = 0.0

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            [*self.differing, *other.differing],
            self.numbers + other.numbers,
            max(self.largest, other.largest),
        )


def compare(stated: Any, fresh: Any, words: Collection[str] = ()) -> Comparison:
    """Compare two values of JSON types; of texts under the keys `words` only whether they exist."""
    result = Comparison()
    _compare(result, "", stated, fresh, words)
    return result


def agree(stated: Any, fresh: Any) -> bool:
    """Return whether two values of JSON types are equal up to rounding."""
    return not compare(stated, fresh).differing


def _compare(
    result: Comparison,
    key: str,
    stated: Any,
    fresh: Any,
    words: Collection[str],
    sd: float = 0.0,
    unit: float = 0.0,
    size: float = 1.0,
) -> None:
    """Add what differs to `result`.

    Args:
        sd: of the paired differences that the table is about, or the width of an interval.
        unit: what this number is held against besides its own size.
        size: the largest mean or SD in the table.
    """
    if isinstance(stated, dict) and isinstance(fresh, dict):
        sd, size = max(sd, _spread(fresh)), _size(fresh) or size
        for name in sorted(stated.keys() | fresh.keys()):
            inner = f"{key}.{name}" if key else str(name)
            if name not in stated or name not in fresh:
                result.differing.append(inner)
                continue
            before, after = stated[name], fresh[name]
            if name in words and _is_text(before) and _is_text(after):
                texts = isinstance(before, str) and isinstance(after, str)
                if texts and bool(before) != bool(after):
                    result.differing.append(inner)
            elif name in STANDARDIZED:
                _compare(result, inner, before, after, words, 1.0, 1.0, size)
            else:
                unit = sd if name in IN_UNITS else 0.0
                _compare(result, inner, before, after, words, sd, unit, size)
    elif isinstance(stated, list | tuple) and isinstance(fresh, list | tuple):
        if len(stated) != len(fresh):
            result.differing.append(key)
            return
        for i, (before, after) in enumerate(zip(stated, fresh, strict=True)):
            _compare(result, f"{key}.{i}" if key else str(i), before, after, words, sd, unit, size)
    # Two integers are counts.
    elif _is_number(stated) and _is_number(fresh) and float in (type(stated), type(fresh)):
        apart, scale = abs(stated - fresh), max(abs(stated), abs(fresh), unit)
        result.numbers += 1
        if not apart <= max(RELATIVE * scale, LEAST * size):
            result.differing.append(key)
        elif scale > LEAST * size / RELATIVE:
            result.largest = max(result.largest, apart / scale)
    elif type(stated) is not type(fresh) or stated != fresh:
        result.differing.append(key)


def _spread(table: dict[str, Any]) -> float:
    """Return the SD that a table states; of an interval alone its width."""
    paired, interval = table.get("paired", table), table.get("interval", table)
    sd = paired.get("sd") if isinstance(paired, dict) else None
    if _is_number(sd):
        return float(sd)
    low, high = (interval.get(k) if isinstance(interval, dict) else None for k in ("low", "high"))
    return float(high - low) if _is_number(low) and _is_number(high) else 0.0


def _size(table: dict[str, Any]) -> float:
    sizes = [abs(table[key]) for key in ("mean", "sd") if _is_number(table.get(key))]
    return float(max(sizes, default=0))


def _is_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_INTEGER


def _is_text(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_text, value)))
