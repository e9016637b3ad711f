"""Numbers in what a program prints or writes: a pattern finds them line by line, a key in rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_POINTS = 200_000  # of a curve; of a longer one every other point is kept
LABEL_CHARACTERS = 80
LINE_BYTES = 1 << 16  # the rest of a longer line is ignored
GOES_ON = re.compile(r"\.?\d|,\d|[eE][-+]?\d")
NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?![a-z0-9_])", re.IGNORECASE)
UNREAD = re.compile(r"(?:[-+]?\.?\d[\d.,]*(?:e[-+]?\d+)?|none|null|n/a)(?![a-z0-9_])", re.I)
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
# Two words at most; digits may be within a word, and what stands before it belongs to none.
LABEL = re.compile(r"(?<![\w.])((?:[^\W\d][\w./-]* )?[^\W\d][\w./-]*)[^\w]*$")
COLOUR = re.compile("\x1b\\[[0-9;]*m")


@dataclass
class Finder:
    """The values of one metric so far: the one that counts, and a curve of bounded length.

    Attributes:
        pattern: of the lines that have a value; empty for values that are added.
        take: "last", "first" or "best"; with steps, the last value is that of the last step.
        better: "lower" or "higher"; of "neither" the best is the last.
        n: the number of values.
        unread: a text in the place of a number that could not be read.
        passed: a line, a text or a step that was skipped, for a warning.
        label: the words before the value that counts, such as `val loss`.
    """

    pattern: str = ""
    take: str = "last"
    better: str = "lower"
    n: int = 0
    value: float | None = None
    step: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    unread: str = ""
    passed: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        self._exact, self._loose = re.compile(self.pattern), loosened(self.pattern)

    def read(self, line: str) -> None:
        """Add the value in a line, if it has one.

        Where only the loosened pattern matches, NaN is a value all the same, and another number one
        that the pattern cannot read.
        """
        exact = self._exact.search(line)
        match = exact or (self._loose.search(line) if self._loose else None)
        if match is None:
            return
        named = match.groupdict()
        group = "value" if "value" in named else 1
        text, start, end = str(match[group]), match.start(group), match.end(group)
        not_finite = NOT_FINITE.match(text)  # `-nan(ind)`, as C prints it
        value = float(not_finite[0]) if not_finite else number(text) if exact else None
        # `6.57` of `6.57e-06` is another number: a pattern that ends within one has read none.
        if value is not None and (not_finite or not GOES_ON.match(line, end)):
            label = LABEL.search(line[max(start - LABEL_CHARACTERS, 0) : start])
            if self.add(value, number(named.get("step"))):
                self.label = label[1].casefold() if label else ""
        elif exact or UNREAD.match(text):
            self.miss(text if value is None else text + line[end : end + 8])
        elif self.take == "last":
            self.passed = f"'{line[:160]}'"

    def miss(self, text: str) -> None:
        """Note a text that is not a number: it replaces the last value."""
        self.unread = self.unread or text
        if self.take == "last":
            self.n, self.value, self.step, self.unread = 0, None, None, text
        else:
            self.passed = self.passed or f"'{text}'"

    def add(self, value: float, step: float | None) -> bool:
        """Add a value; return whether it is the one that counts so far."""
        self.n += 1
        if step is not None:
            self.points.append((step, value))
            if len(self.points) > MOST_POINTS:
                del self.points[1:-1:2]
        if self.take == "last":
            if step is not None and self.step is not None and step < self.step:
                self.passed = f"the value of step {step:g} after step {self.step:g}"
                return False
            self.passed = ""
        elif self.n > 1 and (self.take == "first" or not self._improves(value)):
            return False
        self.value, self.step = value, step
        return True

    def _improves(self, value: float) -> bool:
        if self.better == "neither" or self.value is None or math.isnan(self.value):
            return True
        return value < self.value if self.better == "lower" else value > self.value


def loosened(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern that takes any word as its number; None where that would not help.

    The place is the group `value`, or else the first group; it may have no group within.
    """
    name = re.escape("?P<value>") if "(?P<value>" in pattern else r"(?:\?P<\w+>)?(?!\?)"
    group = rf"(?<!\\)\({name}((?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^][()\\])+)\)(?![*+?{{])"
    place = re.search(group, pattern)
    if place is None or place[1] == r"\S+":
        return None
    try:
        loose = re.compile(pattern[: place.start(1)] + r"\S{1,40}" + pattern[place.end(1) :])
    except re.error:
        return None
    # Where nothing but the number tells lines apart, every word would be in its place.
    return None if loose.search("x") else loose


def clean_line(line: bytes) -> str:
    """Return a line as patterns see it: without colours."""
    return COLOUR.sub("", line[:LINE_BYTES].decode("utf-8", "replace")).strip()


def number(text: Any) -> float | None:
    """Return the number in a text or JSON value, NaN included; None without a number.

    A comma is read between thousands only: 0,985 may be a decimal one.
    """
    plain = str(text).strip().rstrip(".,")
    try:
        return float(plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain)
    except ValueError:  # of true and null, too
        return None


def find_in_rows(rows: Iterable[Any], key: str, step: str, take: str, better: str) -> Finder:
    """Return the values that rows of JSON have under `key`, a dotted path; null is NaN there."""
    finder = Finder("", take, better)
    for row in rows:
        for content in contents(row, key):
            value = math.nan if content is None else number(content)
            if value is None:
                finder.miss(str(content)[:80])
            else:
                finder.add(value, number(next(iter(contents(row, step)), None)))
    return finder


def contents(row: Any, key: str) -> list[Any]:
    """Return the content of a table under a key, or under its parts between dots, in a list."""
    if not isinstance(row, dict):
        return []
    if key in row:
        return [row[key]]
    head, dot, rest = key.partition(".")
    return contents(row.get(head), rest) if dot else []
