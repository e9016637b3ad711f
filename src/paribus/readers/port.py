"""The port: what a reader is given, and the runs that it returns: what the file says, not judged,
averaged or left out."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np

from paribus.errors import ParibusError
from paribus.study.runs import RunsSection
from paribus.untrusted_io import LOG_BYTES, MIB, RECORD_BYTES, open_regular, parse_json

PIECE_BYTES = 1 * MIB
LINE_BYTES = 64 * MIB  # one line of it
HEAD_BYTES = 64 * 1024  # what a file is recognised by
NOT_FINISHED = "unfinished"
FROM_PATH = ("folder", "name")  # of a file, which may name the arm
UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
GRADIENT_NORM = re.compile(r"(?:.*[/_.])?grad(?:ient)?_?norm", re.IGNORECASE)
Value = str | float  # of a fact


@dataclass(eq=False)
class Run:
    """One run, as its files tell it.

    Attributes:
        source: its path, with `#2` after it for the second run in a file.
        scores: the last value of each score, NaN and infinities as they were logged.
        curves: of each score, its steps and values in the order of the file; once it was read, an
            array with a row for each point.
        items: of each score, its values by item: a document, a question.
        facts: what else is known. Readers share the names arm, seed, source_digest, steps (the last
            one), planned_steps, train_seconds, unfinished (the word for it) and cut (how).
        reader, path: the name of its reader, and its file; empty of a table in memory.
        decides: the score by which such runs are judged where none is named.
        is_row: whether it is of a table, where an empty cell is a missing score.
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
        """Return the last value of a score at exactly that step; None where none was logged."""
        curve = self.curves.get(score, np.empty((0, 2)))
        values = curve[curve[:, 0] == step, 1]
        return float(values[-1]) if len(values) else None

    def log(self, name: str, step: float, value: float) -> None:
        """Add a point to the curve of a score."""
        self.curves.setdefault(name, []).append((step, value))

    def state(self, **facts: Any) -> None:
        """Add the facts that are texts or numbers; others say nothing."""
        for name, value in facts.items():
            if is_number(value):
                self.facts[name] = float(value)
            elif isinstance(value, str) and value:
                self.facts[name] = value

    def finish(self) -> None:
        """Take the last value of each curve and the mean of items as scores, and the last step as a
        fact.

        A loss of exactly 0 beside a gradient norm of NaN becomes NaN, and is remembered as the fact
        `zeroed`: the NaN filter of the Hugging Face Trainer logs the mean of the finite losses
        since the last log, which is 0 where there is none (`logging_nan_inf_filter`).
        """
        curves = {name: np.array(curve, np.float64) for name, curve in self.curves.items()}
        norms = [name for name in curves if GRADIENT_NORM.fullmatch(name)]
        norm = curves.pop(norms[0]) if len(norms) == 1 < len(curves) else np.empty((0, 2))
        bad = norm[~np.isfinite(norm[:, 1]), 0]
        for name, curve in curves.items():
            is_lost = (curve[:, 1] == 0) & np.isin(curve[:, 0], bad)
            curve[is_lost, 1] = math.nan
            if is_lost[-1]:
                self.facts["zeroed"] = name
            self.scores[name] = float(curve[-1, 1])
            steps = self.facts.get("steps", -math.inf)
            self.facts["steps"] = max(float(steps), float(curve[:, 0].max()))
        for name, items in list(self.items.items()):
            value = math.fsum(items.values()) / len(items)
            if abs(self.scores.setdefault(name, value) - value) > 1e-9:
                del self.items[name]  # the score is not their mean
        self.curves = curves
        if "train_seconds" in self.curves:
            self.facts.setdefault("train_seconds", self.scores.pop("train_seconds"))


class Source:
    """A file that is read: its name, its first and last bytes, and its content in pieces; of one
    that is packed by gzip, bzip2 or xz as it was before. `section` and `scores` say what the
    columns of tables mean."""

    def __init__(
        self, path: str, section: RunsSection | None = None, scores: Sequence[str] = ()
    ) -> None:
        self.path, self.section, self.scores = path, section or RunsSection(), tuple(scores)
        self.notes: list[str] = []  # what a reader says of the file besides its runs
        self.is_cut = False  # once its content was read, whether its last line had no end
        self.unpack = UNPACK.get(Path(path).suffix.lower())
        self.name = Path(path).stem if self.unpack else Path(path).name
        with self.open() as file:
            self.head = self.tail = file.read(HEAD_BYTES)
            if not self.unpack and len(self.head) == HEAD_BYTES:
                file.seek(max(file.seek(0, 2) - HEAD_BYTES, 0))
                self.tail = file.read(HEAD_BYTES)
        first = self.head.partition(b"\n")[0]
        self.header = first.decode("utf-8-sig", "replace").rstrip("\r")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it."""
        with open_regular(self.path, LOG_BYTES) as file:
            try:
                yield self.unpack(file) if self.unpack else file
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                why = f"{self.path} cannot be read: {error}"
                raise ParibusError(why, code="unreadable") from None

    def has(self, pattern: bytes | re.Pattern[bytes]) -> bool:
        """Return whether a pattern is in its first or last bytes."""
        return any(re.search(pattern, end) for end in (self.head, self.tail))

    def pieces(self) -> Iterator[bytes]:
        """Yield the content in pieces that end with a line, which the last one may not. Raises
        ParibusError for a line above LINE_BYTES."""
        rest = b""
        with self.open() as file:
            while piece := file.read(PIECE_BYTES):
                whole, newline, rest = (rest + piece).rpartition(b"\n")
                if newline:
                    yield whole + newline
                if len(rest) > LINE_BYTES:
                    why = f"{self.path} has a line of more than {LINE_BYTES:,} bytes; is it a log?"
                    raise ParibusError(why)
        self.is_cut = bool(rest)
        if rest:
            yield rest

    def lines(self) -> Iterator[bytes]:
        """Yield its lines, each with its end; the last one may have none. Raises ParibusError."""
        for piece in self.pieces():
            yield from piece.splitlines(keepends=True)

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the object of each line of JSON, with the place that errors name; of a last line
        that is cut none. Raises ParibusError."""
        for number, line in enumerate(self.lines(), start=1):
            if not line.strip():
                continue
            where = f"{self.path}, line {number}"
            try:
                value = read_json(line, where)
            except ParibusError:
                if line.endswith(b"\n") or number == 1:
                    raise
                self.notes.append(f"The last line of {self.path} is cut, and was left out.")
                return
            if not isinstance(value, dict):
                raise ParibusError(f"{where} must be a JSON object")
            yield where, value

    def json(self) -> Any:
        """Return the value of a JSON file. Raises ParibusError."""
        with self.open() as file:
            content = file.read(RECORD_BYTES + 1)
        if len(content) > RECORD_BYTES:
            raise ParibusError(f"{self.path} must have at most {RECORD_BYTES:,} bytes")
        return read_json(content, self.path)


def read_json(content: bytes, where: str) -> Any:
    """Return the value of a JSON text, in which NaN and Infinity are numbers, as Python writes
    them of losses. Raises ParibusError, which names the place `where`."""
    return parse_json(content, where, "is it whole?", finite=False)


class SkippedError(ParibusError):
    """A file that is left to another one: it is read with that one."""


@dataclass(frozen=True)
class Reader:
    """A form of file that is understood.

    Attributes:
        name: how users call it.
        read: returns the runs of a file; raises ParibusError where it is not of this form.
        says: one line about the files, for lists and documentation.
        detects: whether a file is of this form, by its name and its first and last bytes.
        score: what decides where no score is named; the first that a run has.
        general: a form that others are made of, such as a table: asked after all others.
    """

    name: str
    read: Callable[[Source], Iterable[Run]]
    says: str
    detects: Callable[[Source], bool]
    score: tuple[str, ...] = ()
    general: bool = False


def reader(name: str, **options: Any) -> Callable[[Callable[[Source], Iterable[Run]]], Reader]:
    """Make a function from a `Source` to runs a reader; `options` are attributes of `Reader`."""
    return lambda read: Reader(name, read, **options)


SEED = re.compile(
    r"seed[ _=-]?(\d{1,9})(?!\d)|(?<=[-_])s[-_=]?(\d{1,4})(?=[-_./]|$)", re.IGNORECASE
)
# The end of a name: `base-s1`, `base seed 1`, `base_rep-2`.
SEED_END = re.compile(r"(?:^|[-_ ,./]+)(?:seed|s|rep|run|trial|r)[-_= ]?(\d{1,9})$", re.IGNORECASE)


def split_seed(name: str) -> tuple[str, dict[str, Value]]:
    """Return a name less what ends it as a seed, and the fact of that seed, if it has one."""
    match = SEED_END.search(name)
    return (name[: match.start()] or name, {"seed": float(match[1])}) if match else (name, {})


def seed_in(path: str) -> float | None:
    """Return the seed that a path names, `train_seed42.log` or `runs/seed_3/log.txt`; None for
    none."""
    named = SEED.findall(path)
    return float("".join(named[-1])) if named else None


def as_number(text: Any) -> float | None:
    """Return the number that a text is, NaN and infinities too; None for anything else."""
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return None


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value of a JSON file is a number."""
    return type(value) is float or type(value) is int


def as_dict(value: Any) -> dict[str, Any]:
    """Return the object of a JSON file; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def cell_text(value: Any) -> str:
    """Return a cell or a fact as text: 1.0, which pandas makes of an integer beside a gap, is 1."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
