"""Numbers in what a program prints or writes: a pattern finds them line by line, a key in rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ABSENT: Any = object()
MOST_LABELS = 5
MOST_POINTS = 200_000  # of a curve; of a longer one every other point is kept
LABEL_CHARACTERS = 80
LINE_BYTES = 1 << 16  # the rest of a longer line is ignored
GOES_ON = re.compile(r"\.?\d|,\d|[eE][-+]?\d")
NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?![a-z0-9_])", re.IGNORECASE)
UNREAD = re.compile(
    r"(?:[-+]?\.?\d[\d.,]*(?:e[-+]?\d+)?|none|null|n/a)(?![a-z0-9_])", re.IGNORECASE
)
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
# Two words at most; digits may be within a word, and what stands before it is no part of one.
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
        labels: the words before the values, such as `val loss`; `label` is of the one that counts.
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
    labels: list[str] = field(default_factory=list)
    label: str = ""

    def __post_init__(self) -> None:
        self._exact = re.compile(self.pattern)
        self._loose = loosened(self.pattern)

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
        text, end = str(match[group]), match.end(group)
        step = number(named.get("step"))
        if not_finite := NOT_FINITE.match(text):  # `-nan(ind)`, as C prints it
            self._add_labelled(float(not_finite[0]), step, line[: match.start(group)])
        elif exact is None:
            if UNREAD.match(text):
                self.miss(text)
            elif self.take == "last":
                self.passed = f"'{line[:160]}'"
        elif (value := number(text)) is None:
            self.miss(text)
        # `6.57` of `6.57e-06` is another number: a pattern that ends within one has read none.
        elif GOES_ON.match(line, end):
            self.miss(text + line[end : end + 8])
        else:
            self._add_labelled(value, step, line[: match.start(group)])

    def _add_labelled(self, value: float, step: float | None, before: str) -> None:
        match = LABEL.search(before[-LABEL_CHARACTERS:])
        label = match[1].casefold() if match else ""
        if label not in self.labels and len(self.labels) < MOST_LABELS:
            self.labels.append(label)
        if self.add(value, step):
            self.label = label

    def miss(self, text: str) -> None:
        """Note a text that is no number: it replaces the last value."""
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
        is_latest = self.take == "last" or (self.take == "best" and self.better == "neither")
        counts = self.n == 1 or is_latest or (self.take == "best" and self._improves(value))
        if counts:
            self.value, self.step = value, step
        return counts

    def _improves(self, value: float) -> bool:
        if self.value is None or math.isnan(self.value):
            return True
        return value < self.value if self.better == "lower" else value > self.value


def loosened(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern with any word in the place of its number; None where that has no use.

    The place is the group `value`, or else the first group; it may have no group within.
    """
    name = re.escape("?P<value>") if "(?P<value>" in pattern else r"(?:\?P<\w+>)?(?!\?)"
    group = rf"(?<!\\)\(({name})((?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^][()\\])+)\)(?![*+?{{])"
    place = re.search(group, pattern)
    if place is None or place[2] == r"\S+":
        return None
    start, end = place.span(2)
    try:
        loose = re.compile(pattern[:start] + r"\S{1,40}" + pattern[end:])
    except re.error:
        return None
    # Where nothing but the number tells lines apart, every word would be in its place.
    return None if loose.search("x") else loose


def clean_line(line: bytes) -> str:
    """Return a line as patterns see it: without colours."""
    return COLOUR.sub("", line[:LINE_BYTES].decode("utf-8", "replace")).strip()


def number(text: Any) -> float | None:
    """Return a text or JSON value as a number, which may be NaN; None where it is none.

    A comma is read between thousands only: 0,985 may be a decimal one.
    """
    if isinstance(text, bool) or text is None:
        return None
    plain = str(text).strip().rstrip(".,")
    try:
        return float(plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain)
    except ValueError:
        return None


def find_in_rows(rows: Iterable[Any], key: str, step: str, take: str, better: str) -> Finder:
    """Return the values that rows of JSON have under `key`, a dotted path; null is NaN there."""
    finder = Finder("", take, better)
    for row in rows:
        content = value_at(row, key)
        if content is ABSENT:
            continue
        value = math.nan if content is None else number(content)
        if value is None:
            finder.miss(str(content)[:80])
        else:
            finder.add(value, number(value_at(row, step)) if step else None)
    return finder


def value_at(row: Any, key: str) -> Any:
    """Return the value of a table under a key, or under its parts between dots; else ABSENT."""
    if not isinstance(row, dict):
        return ABSENT
    if key in row:
        return row[key]
    head, dot, rest = key.partition(".")
    return value_at(row.get(head), rest) if dot else ABSENT
