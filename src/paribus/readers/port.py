"""The port: what a reader is given, and the runs that it returns.

A reader is a function from one opened file to the runs in it, under a decorator that says its name
and how such a file is recognised. What a reader returns is what the file says: nothing is judged,
averaged or left out here.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, overload

import numpy as np

from paribus.errors import ParibusError
from paribus.untrusted_io import (
    LOG_BYTES,
    MIB,
    RECORD_BYTES,
    open_regular,
    parse_json,
)

PIECE_BYTES = 1 * MIB
LINE_BYTES = 64 * MIB  # one line of it
HEAD_BYTES = 64 * 1024  # what a file is recognised by
EMPTY = "empty_at"
NOT_FINISHED = "unfinished"
UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
NUMBERED = re.compile(r"#\d+$")  # of a source: which run of a file
Value = str | float  # of a fact


class Curve(Sequence[tuple[float, float]]):
    """Points of step and value like a list of them, in 16 bytes each."""

    def __init__(self, steps: np.ndarray, values: np.ndarray) -> None:
        self.steps, self.values = steps, values

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, at: int) -> tuple[float, float]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[float, float]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return list(zip(self.steps[at].tolist(), self.values[at].tolist(), strict=True))
        return float(self.steps[at]), float(self.values[at])

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve | list) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.stack([self.steps, self.values], axis=1).astype(dtype or np.float64)


@dataclass
class Run:
    """One run, as its files tell it.

    Attributes:
        source: the path as given; `#2` after it for the second run in a file.
        scores: the last value of each score, NaN and infinities as they were logged.
        curves: of each score, its values by step, in the order of the file.
        items: of each score, its values by item: a document, a question.
        facts: what else is known, by name. Names that readers share: "arm", "seed",
            "source_digest" (SHA-256 of the source in the log), "steps" (the last one logged),
            "planned_steps", "train_seconds", "commit", "crashed" (how), "unfinished" (the word for
            it, such as running), "cut" (where the file ends in the middle of something),
            "empty_at/" and a score (a step after its last value at which a table has a row without
            one).
        reader: the name of the reader.
        decides: the score by which such runs are judged where none is named.
    """

    source: str
    scores: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    items: dict[str, dict[str, float]] = field(default_factory=dict)
    facts: dict[str, Value] = field(default_factory=dict)
    reader: str = ""
    decides: str = ""

    def at(self, score: str, step: float) -> float | None:
        """Return the value of a score at exactly that step; None where none was logged.

        Of several there, such as before and after a resume, the last.
        """
        return next(
            (value for at, value in reversed(self.curves.get(score, ())) if at == step), None
        )

    @property
    def path(self) -> str:
        """The file that it is of, `a/log.txt` of `a/log.txt#2`; names may have a `#` too."""
        return self.source if os.path.lexists(self.source) else NUMBERED.sub("", self.source)

    def log(self, name: str, step: float, value: float) -> None:
        """Add a point to the curve of a score."""
        self.curves.setdefault(name, []).append((step, value))

    def finish(self, norms: Iterable[tuple[float, float]] = ()) -> Run:
        """Take the last value of each curve as the score, and its last step as a fact; return the
        run. `norms` are gradient norms by step.

        A loss of exactly 0 beside a gradient norm of NaN becomes NaN, and is remembered as the fact
        `zeroed`: the NaN filter of the Hugging Face Trainer logs the mean of the finite losses
        since the last log, which is 0 where there is none (`logging_nan_inf_filter`).
        """
        bad = {step for step, norm in norms if not math.isfinite(norm)}
        for name, curve in self.curves.items():
            if bad and any(value == 0 and step in bad for step, value in curve):
                curve = [
                    (at, math.nan if value == 0 and at in bad else value) for at, value in curve
                ]
                self.curves[name] = curve
                if math.isnan(curve[-1][1]):
                    self.facts["zeroed"] = name
            self.scores[name] = curve[-1][1]
            last = curve.steps.max() if isinstance(curve, Curve) else max(at for at, _ in curve)
            self.facts["steps"] = max(float(self.facts.get("steps", -math.inf)), float(last))
        return self

    def state(self, **facts: Any) -> None:
        """Add the facts that are texts or numbers; others say nothing."""
        for name, value in facts.items():
            if is_number(value):
                self.facts[name] = as_float(value)
            elif isinstance(value, str) and value:
                self.facts[name] = value


@dataclass(frozen=True)
class Columns:
    """The meaning of a table's columns, as the caller states it.

    Attributes:
        scores: columns of values: one or several in a wide table. Empty: see `metric`.
        arm, seed: columns that tell runs apart; empty where there is none.
        run: further columns that tell runs apart, such as an identifier.
        step: the column of steps, where a run has several rows: a curve.
        item: the column of items, such as document identifiers.
        metric, value: of a long table, the columns of the score's name and of its value.
        seed_if_any: the column of seeds where a table has it; a file without one is a run.
    """

    scores: tuple[str, ...] = ()
    arm: str = ""
    seed: str = ""
    run: tuple[str, ...] = ()
    step: str = ""
    item: str = ""
    metric: str = ""
    value: str = ""
    seed_if_any: str = ""

    def by_file(self) -> Columns:
        """Return the same of tables whose arms the files name: each file is a run, if no column of
        that name has seeds."""
        if self.seed != "seed":
            return self
        return replace(self, seed="", seed_if_any="seed")

    @property
    def meant(self) -> set[str]:
        """All columns that mean something."""
        of_run = (self.arm, self.seed, *self.run, self.step, self.item, self.metric, self.value)
        return {*of_run, *self.scores} - {""}


class Source:
    """A file that is read: its name, its first bytes, and its content in pieces.

    Whatever is wrong with the file is a ParibusError, of one line.
    """

    def __init__(self, path: str, columns: Columns | None = None) -> None:
        self.path = path
        self.columns = columns or Columns()
        self.notes: list[str] = []  # what a reader says of the file besides its runs
        self.is_cut = False  # once its content was read, whether its last line had no end

    @property
    def name(self) -> str:
        """The last part of its path; of one that is packed, without the suffix that says so."""
        path = Path(self.path)
        return path.stem if path.suffix.lower() in UNPACK else path.name

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it; one that is packed by gzip, bzip2 or xz is unpacked as it is read."""
        unpack = UNPACK.get(Path(self.path).suffix.lower())
        with open_regular(self.path, LOG_BYTES) as file:
            if unpack is None:
                yield file
                return
            try:
                with unpack(file) as unpacked:
                    yield unpacked
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                raise ParibusError(f"{self.path} cannot be unpacked: {error}") from None

    @cached_property
    def ends(self) -> tuple[bytes, bytes]:
        """Its first and its last bytes, at most HEAD_BYTES each: what it is recognised by."""
        with self.open() as file:
            head = file.read(HEAD_BYTES)
            if Path(self.path).suffix.lower() in UNPACK:
                return head, head
            if len(head) < HEAD_BYTES:
                return head, head
            file.seek(max(file.seek(0, 2) - HEAD_BYTES, 0))
            return head, file.read(HEAD_BYTES)

    @property
    def head(self) -> bytes:
        """Its first bytes."""
        return self.ends[0]

    @property
    def tail(self) -> bytes:
        """Its last bytes; of a small file all of them."""
        return self.ends[1]

    @property
    def header(self) -> str:
        """Its first line, without its end."""
        return self.head.partition(b"\n")[0].decode("utf-8-sig", "replace").rstrip("\r")

    def has(self, word: bytes) -> bool:
        """Return whether a word is in its first or last bytes."""
        return any(word in end for end in self.ends)

    def matches(self, pattern: re.Pattern[bytes]) -> bool:
        """Return whether a pattern is in its first or last bytes."""
        return any(map(pattern.search, self.ends))

    def pieces(self) -> Iterator[bytes]:
        """Yield the content in pieces of about PIECE_BYTES that end with a line.

        The last one may not. Raises ParibusError for a line above LINE_BYTES.
        """
        rest: list[bytes] = []
        waiting = 0
        with self.open() as file:
            while piece := file.read(PIECE_BYTES):
                end = piece.rfind(b"\n") + 1
                if not end:
                    rest.append(piece)
                    waiting += len(piece)
                    if waiting > LINE_BYTES:
                        raise ParibusError(
                            f"{self.path} has a line of more than {LINE_BYTES:,} bytes; is it a "
                            "log?"
                        )
                    continue
                yield b"".join([*rest, piece[:end]])
                rest, waiting = [piece[end:]], len(piece) - end
        self.is_cut = waiting > 0
        if waiting:
            yield b"".join(rest)

    def lines(self) -> Iterator[bytes]:
        """Yield its lines, each with its end; the last one may have none. Raises ParibusError."""
        for piece in self.pieces():
            yield from piece.splitlines(keepends=True)

    def json(self) -> Any:
        """Return the value of a JSON file. Raises ParibusError.

        NaN and Infinity, which Python writes of losses, are numbers here.
        """
        with self.open() as file:
            content = file.read(RECORD_BYTES + 1)
        if len(content) > RECORD_BYTES:
            raise ParibusError(f"{self.path} has more than {RECORD_BYTES:,} bytes")
        return parse_json(content, self.path, "is it whole?", finite=False)


def json_part(source: Source, name: str, kind: type) -> tuple[dict[str, Any], Any]:
    """Return the object of a JSON file and its part `name`. Raises ParibusError where that is not
    of `kind`."""
    content = source.json()
    part = content.get(name) if isinstance(content, dict) else None
    if not isinstance(part, kind):
        raise ParibusError(f"{source.path} has no valid '{name}'; the file may be cut off")
    return content, part


class SkippedError(ParibusError):
    """A file that is left to another one: its items are read with that one."""


Read = Callable[[Source], Iterable[Run]]
Detect = Callable[[Source], bool]


@dataclass(frozen=True)
class Reader:
    """A form of file that is understood.

    Attributes:
        name: how users call it.
        says: one line about the files, for lists and documentation.
        read: returns the runs of a file; raises ParibusError where it is not of this form.
        detects: whether a file is of this form, by its name and its first and last bytes.
        general: a form that others are made of, such as a table: asked after all others.
    """

    name: str
    says: str
    read: Read
    detects: Detect
    general: bool = False


def reader(
    name: str, *, says: str, detects: Detect, general: bool = False
) -> Callable[[Read], Reader]:
    """Make a function from a `Source` to runs a reader; see `Reader`."""
    if not name or not says:
        raise ValueError(f"reader {name!r}: it needs a name, and a line that says what it reads")

    def declare(read: Read) -> Reader:
        return Reader(name, says, read, detects, general)

    return declare


SEED = re.compile(
    r"seed[ _=-]?(\d{1,9})(?!\d)|(?<=[-_])s[-_=]?(\d{1,4})(?=[-_./]|$)", re.IGNORECASE
)
# The end of a name: `base-s1`, `base seed 1`, `base_rep-2`.
SEED_END = re.compile(r"(?:^|[-_ ,./]+)(?:seed|s|rep|run|trial|r)[-_= ]?(\d{1,9})$", re.IGNORECASE)


CHART_SEED_END = re.compile(r"[-_ ]+(?:seed|s)[-_= ]?(\d{1,9})$", re.IGNORECASE)


def split_seed(name: str, pattern: re.Pattern[str] = SEED_END) -> tuple[str, float | None]:
    """Return a name less what ends it as a seed, and that seed; None for none."""
    match = pattern.search(name)
    return (name[: match.start()] or name, float(match[1])) if match else (name, None)


def seed_in(path: str) -> float | None:
    """Return the seed that a path names, `train_seed42.log` or `runs/seed_3/log.txt`; None for
    none."""
    named = SEED.findall(path)
    return float("".join(named[-1])) if named else None


def seed_fact(path: str) -> dict[str, Value]:
    """Return the fact of the seed that a path names; empty where it names none."""
    return {} if (seed := seed_in(path)) is None else {"seed": seed}


def as_number(text: str | bytes) -> float | None:
    """Return the number that a text is, NaN and infinities too; None for any other text."""
    try:
        return float(text)
    except ValueError:
        return None


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value of a JSON file is a number."""
    return type(value) is float or type(value) is int


def as_float(value: float) -> float:
    """Return a number of a JSON file, which may be an integer of any length."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def cell_text(value: Any) -> str:
    """Return a cell or a fact as text: 1.0, which pandas makes of an integer beside a gap, is 1."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def mean(values: Iterable[float]) -> float:
    """Return the mean, exactly summed; NaN of none."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan
