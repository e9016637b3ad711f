"""Held-out measures, behind one decorator; or the user's own, by import path.

A measure is a pure function from a chunk of `Predictions` to sums. The sums of all chunks are
added up, and rows are made of what they come to: by default, each part's total over its count. It
declares the unit of its values, the families of parts that its rows are named by, and where its
definition is from. A file put into this folder is found by itself, and the contract tests run over
it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paribus.declared import declared
from paribus.drawing import Drawing
from paribus.engine.evaluation.predictions import Predictions
from paribus.metric import Better, ItemSums, Metric, readable
from paribus.study.choices import load_new

BINS = 15  # of confidence, as Guo et al. 2017
# From `seq_len` to the names of a family of parts, in the order of their rows. A part that no token
# belongs to has no row, so that nothing is ever divided by zero.
Parts = Callable[[int], tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """One number of a measure.

    `value` is `total` / `count` where the measure is a ratio of sums; other measures have no total
    and no count. The name of the `measure` and its `unit` are filled in once it is checked.
    """

    part: str
    value: float
    total: float | None = None
    count: int | None = None
    measure: str = ""
    unit: str = ""

    @classmethod
    def ratio(cls, part: str, total: float, count: int) -> Row:
        """total / count of a part that has tokens (count > 0), with both."""
        return cls(part, float(total) / int(count), float(total), int(count))


def whole(seq_len: int) -> tuple[str, ...]:
    """Name the one part that has all tokens."""
    return ("all",)


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """Return [N] the bin of each confidence, from 0: (0, 1/15], ..., (14/15, 1].

    The bins of Guo et al. 2017. NaN, which a broken model gives, goes to the first.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def tally(index: np.ndarray, confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return [3, BINS] float64: by bin the tokens, the sum of their confidences, and their hits."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=BINS).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """sum_bins |hits - summed confidence|; over the tokens, the expected calibration error.

    Guo et al. 2017, equation 3: the mean of |accuracy - confidence|, weighted by tokens.
    """
    _, confidence, hits = tally
    return float(np.abs(hits - confidence).sum())


# What a chunk gives: an array of one shape for every chunk of a text, or what NumPy makes one of.
Sum = Callable[[Predictions], Any]
# (the sums of a text, seq_len) -> its rows
Finish = Callable[[np.ndarray, int], list[Row]]


@dataclass(frozen=True)
class Measure:
    """A measure and what it declares.

    Attributes:
        name: what its rows and, for the part "all", the trial's score are called.
        sum: from a chunk to its sums, numbers that add up to those of the text: [parts, 2], the
            total and the count of every part, unless there is a `finish`.
        unit: of its values; empty where they have none.
        source: where the definition is from.
        parts: the families of parts that its rows belong to, in their order.
        better: which direction is an improvement, if any.
        label, digits: what readers are shown.
        items: lets claims about it be about new text: what it is a ratio of by item, in columns
            that every trial has (`engine.evaluation.blocks.SUMS`).
        uniform: as `paribus.metric.Metric` has it.
        of_tokens: whether it is about single tokens: not comparable between tokenizers.
        finish: from the sums of a text to its rows; None for totals over counts. Parts of no tokens
            are left out.
        drawings: how it is drawn, columns without its name.
    """

    name: str
    sum: Sum
    unit: str
    source: str = ""
    parts: tuple[Parts, ...] = (whole,)
    better: Better = "neither"
    label: str = ""
    digits: int = 4
    items: ItemSums | None = None
    uniform: str = ""
    of_tokens: bool = True
    finish: Finish | None = None
    drawings: tuple[Drawing, ...] = ()

    def __post_init__(self) -> None:
        _ = self.metric  # raises where it cannot be one

    @property
    def drawn(self) -> tuple[Drawing, ...]:
        """Its drawings, with the full names of their columns."""
        return tuple(drawing.of(self.name) for drawing in self.drawings)

    @property
    def metric(self) -> Metric:
        """The metric of the whole text; `Metric.part` for the others."""
        shown = (self.name, self.label or readable(self.name), self.unit, self.better, "evaluation")
        uniform = {"uniform": self.uniform, "of_tokens": self.of_tokens}
        return Metric(*shown, digits=self.digits, items=self.items or "", **uniform)

    def part_names(self, seq_len: int) -> tuple[str, ...]:
        """Return every part that there can be, in the order of the rows."""
        return tuple(name for family in self.parts for name in family(seq_len))

    def rows(self, sums: np.ndarray, seq_len: int) -> list[Row]:
        """Return the rows of a text that came to `sums`."""
        if self.finish is not None:
            return self.finish(sums, seq_len)
        names = self.part_names(seq_len)
        if sums.size != 2 * len(names):
            raise ValueError(f"it gave sums of shape {sums.shape}, not a total and a count by part")
        pairs = zip(names, sums.reshape(-1, 2).tolist(), strict=True)
        return [Row.ratio(name, total, int(count)) for name, (total, count) in pairs if count > 0]


def measure(name: str, **declared: Any) -> Callable[[Sum], Measure]:
    """Make the decorated function the measure `name`; see `Measure` for what is declared."""
    return lambda function: Measure(name, function, **declared)


@cache
def all_measures() -> tuple[Measure, ...]:
    """Return every measure of this folder, by file and then by its place in the file."""
    return tuple(declared(__name__, Measure).values())


# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


def own_measures(paths: Iterable[str], folder: Path) -> tuple[Measure, ...]:
    """Return the measures at these import paths; files start at `folder`.

    Raises ParibusError for a path that names no measure, and for a name that is taken.
    """
    taken = [*TAKEN, *(measure.name for measure in all_measures())]
    return tuple(load_new(paths, "evaluation.own", "measure", Measure, folder, taken))
