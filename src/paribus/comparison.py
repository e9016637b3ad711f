"""Compare recorded values with recomputed ones, on any machine.

What is discrete (counts, names, outcomes, digests) must be equal. Numbers in floating point may
differ by rounding: processors add in other orders, and their exponentials differ in the last bit.
Over all kept studies and the processors that were tried, the largest difference was 3e-13 of the
value. A difference of two arms may be near 0 beside scores that are not, so a number is also held
against the SD of the paired differences in its table. Sentences are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeGuard

RELATIVE = 1e-9  # a thousandth of the last of six printed digits
LEAST = 1e-12  # of the largest mean or SD beside a number that is 0 but for rounding
MOST_INTEGER = 2**63  # a larger one is not a count


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
    _compare(result, "", stated, fresh, words, sd=0.0, size=1.0)
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
    sd: float,
    size: float,
) -> None:
    """Add what differs to `result`.

    Args:
        sd: of the paired differences that the table is about, or the width of an interval.
        size: the largest mean or SD in the table.
    """
    if isinstance(stated, dict) and isinstance(fresh, dict):
        sd, size = max(sd, _spread(fresh)), _size(fresh) or size
        for name in sorted(stated.keys() | fresh.keys()):
            inner = f"{key}.{name}" if key else str(name)
            before, after = stated.get(name), fresh.get(name)
            if name not in stated or name not in fresh:
                result.differing.append(inner)
            elif name not in words or not (_is_text(before) and _is_text(after)):
                _compare(result, inner, before, after, words, sd, size)
            elif isinstance(before, str) and isinstance(after, str) and bool(before) != bool(after):
                result.differing.append(inner)
    elif isinstance(stated, list | tuple) and isinstance(fresh, list | tuple):
        if len(stated) != len(fresh):
            result.differing.append(key)
            return
        for i, (before, after) in enumerate(zip(stated, fresh, strict=True)):
            _compare(result, f"{key}.{i}" if key else str(i), before, after, words, sd, size)
    # Two integers are counts.
    elif _is_number(stated) and _is_number(fresh) and float in (type(stated), type(fresh)):
        apart, scale = abs(stated - fresh), max(abs(stated), abs(fresh), sd)
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
