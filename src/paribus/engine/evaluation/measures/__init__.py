"""Held-out measures, declared with `@measure`; a study names custom ones by import path.

A measure is a pure function from a chunk of `Predictions` to sums. The sums of all chunks are
added, and rows are computed from them: by default, each part's total over its count. A measure
declares the unit of its values, the families of parts in its rows, and the source of its
definition. A new file in this folder is found by its name and covered by the contract tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np

from paribus.declared import declared
from paribus.drawing import Drawing
from paribus.metric import Better, ItemSums, Metric, readable
from paribus.study.choices import Decorated, load_new

BINS = 15  # of confidence, as Guo et al. 2017
# Names of a family of parts in the order of their rows, or a function of `seq_len` that returns
# them. A part that no token belongs to has no row, so that nothing is ever divided by zero.
Parts = tuple[str, ...] | Callable[[int], tuple[str, ...]]
ALL = ("all",)  # the single part with all tokens


@dataclass(frozen=True)
class Row:
    """One number of a measure.

    `value` is `total` / `count` if the measure is a ratio of sums; other measures have no total and
    no count. The name of the `measure` and its `unit` are filled in once it is checked.
    """

    part: str
    value: float
    total: float | None = None
    count: int | None = None
    measure: str = ""
    unit: str = ""

    @classmethod
    def ratio(cls, part: str, total: float, count: int) -> Row:
        """Return the row of total / count, for a part with tokens (count > 0)."""
        return cls(part, float(total) / int(count), float(total), int(count))


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """Return the bin of each confidence, [N], numbered from 0: (0, 1/15], ..., (14/15, 1].

    These are the bins of Guo et al. 2017. NaN goes to the first bin.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def tally(index: np.ndarray, confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return [3, BINS] float64: number of tokens, summed confidence and hits of each bin."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=BINS).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """Return sum_bins |hits - summed confidence|: the expected calibration error times tokens.

    Guo et al. 2017, equation 3: the mean of |accuracy - confidence|, weighted by tokens.
    """
    _, confidence, hits = tally
    return float(np.abs(hits - confidence).sum())


# (the sums of a text, seq_len) -> its rows
Finish = Callable[[np.ndarray, int], list[Row]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Measure(Decorated):
    """Declares a function of a chunk of `Predictions` as a measure: `@measure("name", unit="")`.

    It returns sums, an array of one shape for every chunk of a text, which are added over all
    chunks. Unless there is a `finish`, they are [parts, 2], the total and the count of every part.
    Its name is that of its rows, and of the trial's score (its part "all").

    Attributes:
        unit: unit of its values; empty if none exists.
        parts: families of parts in its rows, in order.
        better: direction of an improvement, if any.
        label, digits: name and decimals for readers.
        items: columns of `engine.evaluation.blocks.SUMS` whose ratio it is for each item; they
            allow claims about new text.
        uniform: see `paribus.metric.Metric`.
        of_tokens: whether it is per token, and so not comparable between tokenizers.
        finish: (sums of a text, seq_len) -> its rows; None for totals over counts. Parts without
            tokens are omitted.
        drawings: its figures, with columns relative to its name.
    """

    unit: str
    parts: tuple[Parts, ...] = (ALL,)
    better: Better = "neither"
    label: str = ""
    digits: int = 4
    items: ItemSums | None = None
    uniform: str = ""
    of_tokens: bool = True
    finish: Finish | None = None
    drawings: tuple[Drawing, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.metric  # raises where it cannot be one

    @property
    def drawn(self) -> tuple[Drawing, ...]:
        """Its figures, with full column names."""
        return tuple(drawing.of(self.name) for drawing in self.drawings)

    @property
    def metric(self) -> Metric:
        """The metric of the whole text; see `Metric.part` for its parts."""
        shown = (self.name, self.label or readable(self.name), self.unit, self.better, "evaluation")
        uniform = {"uniform": self.uniform, "of_tokens": self.of_tokens}
        return Metric(*shown, digits=self.digits, items=self.items or "", **uniform)  # type: ignore

    def part_names(self, seq_len: int) -> tuple[str, ...]:
        """Return all possible parts, in the order of the rows."""
        families = (f(seq_len) if callable(f) else f for f in self.parts)
        return tuple(chain.from_iterable(families))

    def rows(self, sums: np.ndarray, seq_len: int) -> list[Row]:
        """Return the rows of a text, computed from its `sums`."""
        if self.finish is not None:
            return self.finish(sums, seq_len)
        names = self.part_names(seq_len)
        if sums.size != 2 * len(names):
            raise ValueError(
                f"it gave sums of shape {sums.shape}; it must give a total and a count per part"
            )
        pairs = zip(names, sums.reshape(-1, 2).tolist(), strict=True)
        return [Row.ratio(name, total, int(count)) for name, (total, count) in pairs if count > 0]


measure = Measure


@cache
def all_measures() -> tuple[Measure, ...]:
    """Return all shipped measures, in the order of files and of definitions in a file."""
    return tuple(declared(__name__, Measure).values())


# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


def own_measures(paths: Iterable[str], folder: Path) -> tuple[Measure, ...]:
    """Return the measures at these import paths; file paths are relative to `folder`.

    Raises ParibusError for a path that is not a measure, and for a name that is taken.
    """
    taken = [*TAKEN, *(measure.name for measure in all_measures())]
    return tuple(load_new(paths, "evaluation.own", "measure", Measure, folder, taken))
