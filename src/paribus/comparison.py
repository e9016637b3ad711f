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
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

RELATIVE = 1e-9  # of a number; of one in units of an endpoint also of the SD of the differences
LEAST = 1e-12  # of the largest number beside it: of what is 0 but for rounding
# Keys of numbers that are held against the SD of the paired differences that they are about, ...
IN_UNITS = frozenset({"delta", "detectable", "high", "low", "mean"})
# ... and those in units of that SD.
STANDARDIZED = frozenset({"correlation", "d_z", "d_z_interval", "g_z", "g_z_interval", "t"})
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


@dataclass(frozen=True)
class Leniency:
    """Exceptions from a comparison, by key.

    Attributes:
        words: texts, lists and tables of texts: whether a text is there is compared.
    """

    words: Collection[str] = ()


STRICT = Leniency()


def compare(stated: Any, fresh: Any, leave: Leniency = STRICT) -> Comparison:
    """Compare two values of JSON types."""
    found = Comparison()
    _compare(found, "", stated, fresh, _Scale(), leave)
    return found


def agree(stated: Any, fresh: Any) -> bool:
    """Return whether two values of JSON types are equal up to rounding."""
    return not compare(stated, fresh).differing


@dataclass(frozen=True)
class _Scale:
    """Sizes that numbers of a table are held against besides their own.

    Attributes:
        sd: of the paired differences that it is about, or the width of an interval; 0 of none.
        unit: of this number alone.
        size: the largest mean or SD in the table.
    """

    sd: float = 0.0
    unit: float = 0.0
    size: float = 1.0

    def inside(self, table: dict[str, Any]) -> _Scale:
        """Return the scale of a table's own numbers."""
        paired = table.get("paired")
        sd = (paired if isinstance(paired, dict) else table).get("sd")
        if not _is_number(sd):  # what has an interval alone is known to its width
            ends = table.get("interval")
            low, high = (
                (ends if isinstance(ends, dict) else table).get(k) for k in ("low", "high")
            )
            sd = high - low if _is_number(low) and _is_number(high) else None
        sizes = [abs(table[key]) for key in ("mean", "sd") if _is_number(table.get(key))]
        return replace(
            self,
            sd=max(self.sd, float(sd)) if _is_number(sd) else self.sd,
            size=float(max(sizes)) if sizes else self.size,
        )

    def of(self, name: str) -> _Scale:
        """Return the scale of what is called `name` in the table; an interval has its bounds
        inside."""
        if name in STANDARDIZED:
            return replace(self, sd=1.0, unit=1.0)
        return replace(self, unit=self.sd if name in IN_UNITS else 0.0)


def _compare(
    found: Comparison, key: str, stated: Any, fresh: Any, scale: _Scale, leave: Leniency
) -> None:
    if isinstance(stated, dict) and isinstance(fresh, dict):
        scale = scale.inside(fresh)
        for name in sorted(stated.keys() | fresh.keys()):
            inner = f"{key}.{name}" if key else str(name)
            if name not in stated or name not in fresh:
                found.differing.append(inner)
                continue
            before, after = stated[name], fresh[name]
            if name in leave.words and _is_text(before) and _is_text(after):
                texts = isinstance(before, str) and isinstance(after, str)
                if texts and bool(before) != bool(after):
                    found.differing.append(inner)
            else:
                _compare(found, inner, before, after, scale.of(str(name)), leave)
    elif isinstance(stated, list | tuple) and isinstance(fresh, list | tuple):
        if len(stated) != len(fresh):
            found.differing.append(key)
            return
        for i, pair in enumerate(zip(stated, fresh, strict=True)):
            _compare(found, f"{key}.{i}" if key else str(i), *pair, scale, leave)
    # Two integers are counts.
    elif _is_number(stated) and _is_number(fresh) and float in (type(stated), type(fresh)):
        apart, size = abs(stated - fresh), max(abs(stated), abs(fresh), scale.unit)
        found.numbers += 1
        if not apart <= max(RELATIVE * size, LEAST * scale.size):
            found.differing.append(key)
        elif size > LEAST * scale.size / RELATIVE:
            found.largest = max(found.largest, apart / size)
    elif type(stated) is not type(fresh) or stated != fresh:
        found.differing.append(key)


def _is_number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_INTEGER


def _is_text(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_text, value)))
