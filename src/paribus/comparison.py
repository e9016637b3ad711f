"""Comparison of recorded values with recomputed ones, possibly from another machine.

Discrete values (counts, names, outcomes, digests) must be equal. Floating-point numbers may differ
by rounding: processors add in different orders, and their exponentials differ in the last bit.
Over all kept studies and the processors that were tried, the largest difference was 3e-13 of the
value. `RELATIVE` leaves room for problems that are worse conditioned, and is a thousandth of the
last digit that is ever printed (six): a change that a reader could see is found. A difference of
two arms may be near 0 although their scores are not, so a number is also compared with the SD next
to it. Sentences are not compared, because rewording them does not invalidate an old file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

RELATIVE = 1e-9  # of a number, or of the SD, the mean or the width of the interval beside it
LEAST = 1e-12  # of what is 0 but for rounding
LARGEST = 1e300  # a difference of larger ones may have no value


def differences(
    stated: Any, fresh: Any, words: Collection[str] = (), *, key: str = "", size: float = 0.0
) -> Iterator[str]:
    """Yield the dotted keys at which two values of JSON types differ by more than rounding.

    Args:
        words: keys of texts, which are not compared.
        size: the largest mean, SD or interval width in the enclosing tables.
    """
    before, after = _members(stated), _members(fresh)
    if (
        before is not None
        and after is not None
        and isinstance(stated, dict) is isinstance(fresh, dict)
    ):
        size = _size(after) or size
        for name in sorted(before.keys() | after.keys()):
            inner = f"{key}.{name}" if key else str(name)
            if name not in before or name not in after:
                yield inner
            elif not (name in words and _is_text(before[name]) and _is_text(after[name])):
                yield from differences(before[name], after[name], words, key=inner, size=size)
    elif float in (type(stated), type(fresh)) and _is_number(stated) and _is_number(fresh):
        if abs(stated - fresh) > max(RELATIVE * max(abs(stated), abs(fresh), size), LEAST):
            yield key
    elif type(stated) is not type(fresh) or stated != fresh:  # two integers are counts
        yield key


def agree(stated: Any, fresh: Any) -> bool:
    """Return whether two values of JSON types are equal up to rounding."""
    return not any(True for _ in differences(stated, fresh))


def _members(value: Any) -> dict[Any, Any] | None:
    """Return the members of a table by key, or of a list by index; None for any other value."""
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else None


def _size(table: dict[Any, Any]) -> float:
    """Return the largest of a table's mean, SD and interval width."""
    numbers = {key: value for key, value in table.items() if _is_number(value)}
    width = numbers["high"] - numbers["low"] if {"low", "high"} <= numbers.keys() else 0
    return float(max(abs(numbers.get("mean", 0)), abs(numbers.get("sd", 0)), width))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST  # neither true nor NaN


def _is_text(value: Any) -> bool:
    members = _members(value)
    return isinstance(value, str) if members is None else all(map(_is_text, members.values()))
