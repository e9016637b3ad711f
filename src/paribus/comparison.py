"""Whether what was written is what follows from its sources, computed again on any machine.

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

RELATIVE = 1e-9  # of a number, or of the SD of the paired differences that it is about
LEAST = 1e-12  # absolute: of what is 0 but for rounding
# In units of that SD, whatever unit the endpoint has.
STANDARDIZED = frozenset({"correlation", "d_z", "d_z_interval", "g_z", "g_z_interval", "t"})
PROBABILITIES = ("p", "p_value", "_p")  # ends of keys; held against themselves alone


@dataclass
class Comparison:
    """What differs between two nested values, and how far apart their equal numbers are.

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


def compare(
    stated: Any,
    fresh: Any,
    *,
    words: Collection[str] = (),
    optional: Collection[str] = (),
    partial: bool = False,
) -> Comparison:
    """Compare two values of JSON types.

    Args:
        words: keys whose texts are sentences: whether there is one is compared, unless `partial`.
        optional: keys that one of the two may have as null.
        partial: leave out what one of the two lacks, or has as null: of files of another schema.
    """
    found = Comparison()
    _compare(found, "", stated, fresh, 0.0, _Leniency(words, optional, partial))
    return found


def agree(
    stated: Any, fresh: Any, *, optional: Collection[str] = (), partial: bool = False
) -> bool:
    """Whether two values of JSON types are equal up to rounding; arguments as of `compare`."""
    return not compare(stated, fresh, optional=optional, partial=partial).differing


@dataclass(frozen=True)
class _Leniency:
    """What is not compared, besides the rounding of numbers."""

    words: Collection[str]
    optional: Collection[str]
    partial: bool


def _compare(
    found: Comparison,
    key: str,
    stated: Any,
    fresh: Any,
    scale: float,
    leave: _Leniency,
) -> None:
    if isinstance(stated, dict) and isinstance(fresh, dict):
        scale = _sd(fresh, scale)
        names = stated.keys() & fresh.keys() if leave.partial else stated.keys() | fresh.keys()
        for name in sorted(names):
            inner = f"{key}.{name}" if key else str(name)
            if name in leave.words:
                # A list of sentences may be told in more, or in fewer.
                told = [one.get(name) for one in (stated, fresh)]
                texts = all(isinstance(text, str) for text in told) and not leave.partial
                if texts and bool(told[0]) != bool(told[1]):
                    found.differing.append(inner)
            elif name not in stated or name not in fresh:
                found.differing.append(inner)
            elif (leave.partial or name in leave.optional) and None in (stated[name], fresh[name]):
                continue
            else:
                unit = _unit(str(name), scale)
                _compare(found, inner, stated[name], fresh[name], unit, leave)
    elif isinstance(stated, list | tuple) and isinstance(fresh, list | tuple):
        if len(stated) != len(fresh):
            found.differing.append(key)
            return
        for i, pair in enumerate(zip(stated, fresh, strict=True)):
            _compare(found, f"{key}.{i}" if key else str(i), *pair, scale, leave)
    # Two integers are counts.
    elif _is_number(stated) and _is_number(fresh) and float in (type(stated), type(fresh)):
        apart, size = abs(stated - fresh), max(abs(stated), abs(fresh), scale)
        found.numbers += 1
        if stated == fresh:
            return
        if not apart <= max(RELATIVE * size, LEAST):
            found.differing.append(key)
        elif size > LEAST / RELATIVE:
            found.largest = max(found.largest, apart / size)
    elif type(stated) is not type(fresh) or stated != fresh:
        found.differing.append(key)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unit(name: str, sd: float) -> float:
    """What a number of this name is held against besides its own size."""
    if name in STANDARDIZED:
        return 1.0
    return 0.0 if name in PROBABILITIES or name.endswith(PROBABILITIES[-1]) else sd


def _sd(about: dict[str, Any], outer: float) -> float:
    """The SD of the paired differences that a table is about, else that of the table around it."""
    paired = about.get("paired")
    sd = (paired if isinstance(paired, dict) else about).get("sd")
    return sd if isinstance(sd, float) and math.isfinite(sd) else outer
