"""Interface of readers: the `Source` that they receive, and the runs that they return."""

from __future__ import annotations

import codecs
import gzip
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from paribus.errors import ParibusError
from paribus.study.runs import RunsSection
from paribus.untrusted_io import MIB, RECORD_BYTES, regular_path

PIECE_BYTES = 2 * MIB
HEAD_BYTES = 64 * 1024  # what a file is recognised by
NOT_FINISHED, PLANNED = "unfinished", "planned_steps"  # facts
FROM_PATH = ("folder", "name")  # of a file, which may name the arm
PACKED = ".gz"  # end of the name of a compressed file
LARGEST_EXACT = 2**53  # larger integers are texts: not every one of them is a float
GRADIENT_NORM = re.compile(r"(?:.*[/_.])?grad(?:ient)?_?norm", re.IGNORECASE)
Value = str | float  # of a fact


@dataclass(eq=False)
class Run:
    """A run, as described by its files.

    Attributes:
        source: the file path, with the suffix `#2` for the second run in a file.
        scores: the last value of each score. NaN and infinities are kept as logged.
        curves: each score's steps and values in file order; after `finish`, an array [points, 2].
        items: each score's values, keyed by item, such as a document or a question.
        facts: anything else that is known. Readers share the names arm, seed, source_digest, steps
            (its last), planned_steps, train_seconds, unfinished (its state), and cut (if it is).
        reader: the name of the reader, or "" for a table in memory.
        decides: the score to judge by if none is named.
        path: the file path, or "" for a table in memory.
        is_row: whether the run comes from a table, where an empty cell is a missing score.
    """

    source: str = "a row"
    scores: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    items: dict[str, dict[str, float]] = field(default_factory=dict)
    facts: dict[str, Value] = field(default_factory=dict)
    reader: str = ""
    decides: str = ""
    path: str = ""
    is_row: bool = False

    def at(self, score: str, step: float) -> float | None:
        """Return the last value of a score at exactly this step, or None if none exists."""
        curve = self.curves.get(score, np.empty((0, 2)))
        values = curve[curve[:, 0] == step, 1]
        return float(values[-1]) if len(values) else None

    def log(self, name: str, step: float, value: float) -> None:
        """Append a point to a score's curve."""
        self.curves.setdefault(name, []).append((step, value))

    def state(self, **facts: Any) -> None:
        """Add facts. Values other than numbers and non-empty strings are ignored."""
        for name, value in facts.items():
            if is_number(value):
                self.facts[name] = as_value(value)
            elif isinstance(value, str) and value:
                self.facts[name] = value

    def finish(self, defaults: Sequence[str] = ()) -> None:
        """Compute scores, the last value of a curve or the mean over items, and the last step.

        A loss of exactly 0 logged with a non-finite gradient norm becomes NaN, and if it is the
        last one, the fact `zeroed` names it. The Hugging Face Trainer's `logging_nan_inf_filter`
        logs the mean of the finite losses since the last log, which is 0 if none exist.
        """
        self.curves = {name: np.asarray(own, np.float64) for name, own in self.curves.items()}
        stated = {**self.facts, **self.scores}.items()
        points = self.curves or {n: np.array([[0.0, v]]) for n, v in stated if is_number(v)}
        for norm in [points[name] for name in points if GRADIENT_NORM.fullmatch(name)]:
            lost_steps = norm[~np.isfinite(norm[:, 1]), 0]
            for name in [name for name in points if "loss" in name.lower()]:
                steps, values = points[name].T
                is_lost = (values == 0) & np.isin(steps, lost_steps)
                values[is_lost] = math.nan
                if is_lost[-1]:
                    self.facts["zeroed"] = name
        for name in points.keys() & {*self.curves, *self.scores}:
            self.scores[name] = float(points[name][-1, 1])
        for curve in self.curves.values():
            self.facts["steps"] = max(self.facts.get("steps", -math.inf), float(curve[:, 0].max()))
        for name, items in list(self.items.items()):
            value = math.fsum(items.values()) / len(items)
            if abs(self.scores.setdefault(name, value) - value) > 1e-9:
                del self.items[name]  # the score is not their mean
        if "train_seconds" in self.curves:
            self.facts.setdefault("train_seconds", self.scores.pop("train_seconds"))
        matches = [[s for s in self.scores if fnmatchcase(s, name)] for name in defaults]
        if first := next(filter(None, matches), None):  # several are a choice of the user's
            self.decides = first[0] if len(first) == 1 else ""


class Source:
    """A file to read: its name, its first and last bytes, and its content in chunks.

    `.gz` and UTF-16 are converted. For tables, `section` and `scores` name columns.
    """

    def __init__(
        self, path: str, section: RunsSection | None = None, scores: Sequence[str] = ()
    ) -> None:
        self.path, self.section, self.scores = path, section or RunsSection(), tuple(scores)
        self.is_cut = False  # once its content was read: whether its last line has no end
        self.name, self.encoding = Path(path).name.removesuffix(PACKED), "utf-8"
        with self.open() as file:
            if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                self.encoding = "utf-16"
        with self.open() as file:
            self.head = self.tail = file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
            if file.read(1):
                self.tail = b"\n"  # of a converted file, whose end is not known
                if not (path.endswith(PACKED) or self.encoding != "utf-8"):
                    file.seek(-HEAD_BYTES, os.SEEK_END)
                    self.tail = file.read()
        self.header = self.head.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")
        self.ends = [b"\n" + end for end in {self.head: 0, self.tail: 0}]

    def open(self) -> Any:
        """Open the file in binary mode, decompressed and converted to UTF-8 if necessary."""
        opened = gzip.open if self.path.endswith(PACKED) else open
        file: Any = opened(regular_path(self.path), "rb")
        return file if self.encoding == "utf-8" else codecs.EncodedFile(file, "utf-8", "utf-16")

    def has(self, pattern: bytes | re.Pattern[bytes]) -> bool:
        """Return whether a pattern occurs in the first or last bytes, each after a newline."""
        return any(re.search(pattern, end) for end in self.ends)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content in chunks of whole lines, the last one possibly without a newline."""
        with self.open() as file:
            while piece := file.read(PIECE_BYTES):
                rest = b"" if piece.endswith(b"\n") else file.readline()
                self.is_cut = not (rest or piece).endswith(b"\n")
                yield piece + rest

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of `pieces` with their newlines, which the last line may lack."""
        for piece in self.pieces():
            yield from piece.splitlines(keepends=True)

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON object on each line. An incomplete last line is skipped."""
        for number, line in enumerate(self.lines(), start=1):
            try:
                value = json.loads(line if line.strip() else "{}")
                if not isinstance(value, dict):
                    raise ValueError("expected a JSON object")
            except ValueError as error:
                if number == 1 or line.endswith(b"\n"):
                    raise ParibusError(f"{self.path}, line {number}: {error}") from None
                return
            if value:
                yield value
        self.is_cut = False

    def json(self) -> Any:
        """Parse the file as JSON. NaN and Infinity, which Python writes, are accepted."""
        with self.open() as file:
            return json.loads(file.read(RECORD_BYTES))


class SkippedError(ParibusError):
    """Raised by a reader to skip a file, with the reason."""


@dataclass(frozen=True)
class Reader:
    """A supported file format, and the function that reads it."""

    name: str
    read: Callable[[Source], Iterable[Run]]
    says: str  # a one-line description of the files
    detects: Callable[[Source], bool]  # from the name and the first and last bytes of a file
    score: tuple[str, ...] = ()  # names or patterns (`*/loss`); the first that a run has decides


def reader(name: str, **options: Any) -> Callable[[Callable[[Source], Iterable[Run]]], Reader]:
    """Create a decorator that turns a function from a `Source` to runs into a `Reader`."""
    return lambda read: Reader(name, read, **options)


SEED = re.compile(
    r"seed[ _=-]?(\d{1,9})(?!\d)|(?<=[-_])s[-_=]?(\d{1,4})(?=[-_./]|$)", re.IGNORECASE
)
# The end of a name: `base-s1`, `base seed 1`, `base_rep-2`.
SEED_END = re.compile(r"(?:^|[-_ ,./]+)(?:seed|s|rep|run|trial|r)[-_= ]?(\d{1,9})$", re.IGNORECASE)


def split_seed(name: str) -> tuple[str, dict[str, Value]]:
    """Return a name without its trailing seed, and the seed as `{"seed": ...}`, or {}."""
    match = SEED_END.search(name)
    return (name[: match.start()] or name, {"seed": float(match[1])}) if match else (name, {})


def seed_in(path: str) -> float | None:
    """Return the last seed in a path such as `runs/seed_3/log.txt`, or None if none exists."""
    named = SEED.findall(path)
    return float("".join(named[-1])) if named else None


def as_number(text: Any) -> float | None:
    """Convert a value to a float, which may be NaN or infinite, or return None if this fails."""
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return None


def as_value(text: Any) -> Value:
    """Convert text to a float if this loses nothing, or return it unchanged otherwise."""
    number = as_number(text)
    is_exact = number is not None and (abs(number) < LARGEST_EXACT or not str(text).isdecimal())
    return number if is_exact else str(text)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is an int or a float, but not a bool."""
    return type(value) is float or type(value) is int


def as_dict(value: Any) -> dict[str, Any]:
    """Return `value` if it is a dict, and {} otherwise."""
    return value if isinstance(value, dict) else {}


def cell_text(value: Any) -> str:
    """Convert a cell or fact to text: 1.0 to `1`, because a gap makes pandas store floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
