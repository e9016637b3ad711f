"""Lines that differ in their numbers alone, said as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from paribus.report.words import listed

NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)*(?:e-?\d+)?(?!\w)")
MOST_NUMBERS = 3  # that are named one by one; of more the least and the largest


def skeleton(line: str) -> str:
    """The line without its numbers: lines with the same one differ in numbers alone."""
    return NUMBER.sub("\0", line)


def merged(lines: Sequence[str]) -> str:
    """One line for several of the same skeleton, with every number that they have at a place.

    `7 candidates` and `8 candidates` are `7 or 8 candidates`, and with `5` and `12` besides they
    are `5 to 12 candidates`.
    """
    columns = zip(*(NUMBER.findall(line) for line in lines), strict=True)
    numbers = iter([_together(column) for column in columns])
    return NUMBER.sub(lambda _: next(numbers), lines[0])


def once(lines: Iterable[str]) -> list[str]:
    """All lines, those that differ in their numbers alone as one."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        alike.setdefault(skeleton(line), []).append(line)
    return [merged(found) for found in alike.values()]


def _together(found: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(found))
    if len(distinct) == 1:
        return distinct[0]
    ordered = sorted(distinct, key=_value)
    if len(ordered) > MOST_NUMBERS:
        return f"{ordered[0]} to {ordered[-1]}"
    return listed(ordered).replace(" and ", " or ")


def _value(number: str) -> tuple[float, ...]:
    """Of a number, or part by part of a version."""
    plain = number.replace(",", "")
    return (float(plain),) if plain.count(".") < 2 else tuple(map(float, plain.split(".")))
