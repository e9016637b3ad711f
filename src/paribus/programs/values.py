"""Numbers in what a program prints: each by the pattern of its source, as the lines come.

A `Finder` is given every line once and keeps little: the first, the last and the best value, and a
curve of bounded length. This is used by workers, and imports little.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ABSENT: Any = object()
MOST_LABELS = 5  # kinds of lines that a pattern matches, as told
MOST_POINTS = 200_000  # of a curve; of a longer one every other point is kept


@dataclass
class Finder:
    """What was found of one number so far.

    Attributes:
        take: "last", "first" or "best"; where values have steps, the last is that of the last step,
            and of several there the one that came last.
        better: "lower" or "higher"; of "neither" the best is the last.
        n: how many values there were.
        unread: the first text that stood in the place of a number, or began with one.
        labels: the words right before the numbers that were found, such as `val loss`: several
            where the pattern matches lines of several kinds; `label` is of the one that counts.
        passed: what was passed over: the last line since the value, with a word in the place of
            the number (`loosened`); of the first or the best value, a number that was not read;
            or that a value of an earlier step came last.
    """

    pattern: str
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
        self._search = re.compile(self.pattern).search if self.pattern else None
        loose = loosened(self.pattern)
        self._place = re.compile(loose).search if loose else None

    def hear(self, line: str) -> None:
        """Look for the number in a line."""
        found = self._search(line) if self._search else None
        if found is None:
            self._look_at_place(line)
            return
        named = found.groupdict()
        which = "value" if "value" in named else 1
        text, end = found[which], found.end(which)
        value = number(text)
        if value is None and NOT_FINITE.match(str(text)):  # `-nan(ind)`, as C prints it
            value = math.nan
        # `6.57` of `6.57e-06` is another number: a pattern that ends within one has read none.
        if value is not None and GOES_ON.match(line, end):
            text, value = found[which] + line[end : end + 8], None
        if value is None:
            self.miss(str(text))
            return
        label = label_before(line, found.start(which))
        if label not in self.labels and len(self.labels) < MOST_LABELS:
            self.labels.append(label)
        if self.add(value, number(named.get("step"))):
            self.label = label

    def _look_at_place(self, line: str) -> None:
        """Look at what stands in the place of the number, where the pattern does not match: NaN is
        a value all the same, another number one that the pattern does not read."""
        found = self._place(line) if self._place else None
        if found is None:
            return
        named = found.groupdict()
        text = str(found["value" if "value" in named else 1])
        if not_finite := NOT_FINITE.match(text):
            self.add(float(not_finite[0]), number(named.get("step")))
        elif NUMBER.match(text) or ABSENT_WORD.match(text):
            self.miss(text)
        elif self.take == "last":
            self.passed = f"'{line[:160]}'"

    def miss(self, text: str) -> None:
        """Note what is no number: where the last value counts, it is not the one before."""
        self.unread = self.unread or text
        if self.take == "last":
            self.n, self.value, self.step, self.unread = 0, None, None, text
        else:
            self.passed = self.passed or f"'{text}'"

    def add(self, value: float, step: float | None) -> bool:
        """Note a value, with its step where it has one; return whether it is the one that counts so
        far."""
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
        first, last = self.n == 1, self.take == "last" or self.better == "neither"
        counts = first or (self.take != "first" and (last or self._improves(value)))
        if counts:
            self.value, self.step = value, step
        return counts

    def _improves(self, value: float) -> bool:
        if self.value is None or math.isnan(self.value):
            return True
        return value < self.value if self.better == "lower" else value > self.value


GOES_ON = re.compile(r"\.?\d|,\d|[eE][-+]?\d")
NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?![a-z0-9_])", re.IGNORECASE)
NUMBER = re.compile(r"[-+]?\.?\d[\d.,]*(?:e[-+]?\d+)?(?![a-z0-9_])", re.IGNORECASE)
ABSENT_WORD = re.compile(r"(?:none|null|n/a)(?![a-z0-9_])", re.IGNORECASE)
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
IN_ITS_PLACE = r"\S{1,40}"
PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P<\w+>|.))?|\)|.", re.DOTALL)
LABEL_CHARACTERS = 80
# A word may have digits within; what stands before it is no part of one.
LABEL = re.compile(r"(?<![\w.])((?:[^\W\d][\w./-]* )?[^\W\d][\w./-]*)[^\w]*$")
COLOUR = re.compile("\x1b\\[[0-9;]*m")
LINE_BYTES = 1 << 16  # of a longer line the rest is not looked at


def loosened(pattern: str) -> str:
    """Return a pattern with any word in the place of its number, which is in its group `value` or
    its first one; empty where it has no such place."""
    depth, groups, begin, end = 0, 0, -1, -1
    wanted = 1
    if re.search(r"\(\?P<value>", pattern):
        wanted = re.compile(pattern).groupindex.get("value", 1)
    opened = 0
    for part in PART.finditer(pattern):
        token = part[0]
        if token.startswith("("):
            depth += 1
            groups += token == "(" or token.startswith("(?P<")
            if begin < 0 and groups == wanted and (token == "(" or token.startswith("(?P<")):
                begin, opened = part.end(), depth
        elif token == ")":
            if begin >= 0 and end < 0 and depth == opened:
                end = part.start()
            depth -= 1
    reads_words = pattern[begin:end] == r"\S+"
    if end < 0 or reads_words or pattern[end + 1 : end + 2] in tuple("*+?{"):
        return ""
    made = pattern[:begin] + IN_ITS_PLACE + pattern[end:]
    try:
        found = re.compile(made)
    except re.error:
        return ""
    # Where nothing but the number tells lines apart, every word would be in its place.
    return "" if found.search("x") else made


def label_before(line: str, at: int) -> str:
    """Return the words right before a number, two at most: `val loss` of `step 3 | val loss: 2.1`,
    `val_loss_ema` of `val_loss_ema 2.1`."""
    found = LABEL.search(line[max(at - LABEL_CHARACTERS, 0) : at])
    return found[1].casefold() if found else ""


def text_of(line: bytes) -> str:
    """Return a line as patterns see it: without colours."""
    return COLOUR.sub("", line[:LINE_BYTES].decode("utf-8", "replace")).strip()


def lines_of(printed: bytes) -> Iterable[str]:
    """Yield the lines of what was printed; a carriage return ends one too."""
    return filter(None, map(text_of, printed.replace(b"\r", b"\n").split(b"\n")))


def number(text: Any) -> float | None:
    """Return a text or JSON value as a number; None where it is none. NaN is one.

    A comma is read between thousands alone: 0,985 may be a decimal one.
    """
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, int | float):
        return float(text)
    plain = str(text).strip().rstrip(".,")
    if THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return None


def in_rows(rows: Iterable[Any], key: str, step: str, take: str, better: str) -> Finder:
    """Return what rows of JSON have under `key`, which may be of tables in tables; `step` as well.

    What is no row with that key is passed over; null is what JSON has for NaN.
    """
    found = Finder("", take, better)
    for row in rows:
        there = at(row, key)
        if there is ABSENT:
            continue
        value = math.nan if there is None else number(there)
        if value is None:
            found.miss(str(there)[:80])
            continue
        found.add(value, number(at(row, step)) if step else None)
    return found


def at(row: Any, key: str) -> Any:
    """Return what a table has under a key, or under its parts between dots; ABSENT for nothing."""
    if not isinstance(row, dict):
        return ABSENT
    if key in row:
        return row[key]
    head, dot, rest = key.partition(".")
    return at(row.get(head), rest) if dot else ABSENT
