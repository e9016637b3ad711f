"""Held-out measures, declared with `@measure`; a study names custom ones by import path.

A measure is a pure function from a chunk of `Predictions` to sums. The sums of all chunks are
added, and rows are computed from them: by default, each part's total divided by its count. A
measure declares the unit of its values and the families of parts in its rows. Measures in new files
of this folder are found automatically and covered by the contract tests.
"""

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
    """Value of a measure for one part, such as a token class or a position in the window.

    `value` is `total` / `count` if the measure is a ratio of sums; otherwise, both are None. The
    name of the `measure` and its `unit` are filled in by the evaluation.
    """

    part: str
    value: float
    total: float | None = None
    count: int | None = None
    measure: str = ""
    unit: str = ""

    @classmethod
    def ratio(cls, part: str, total: float, count: int) -> Row:
        """Return a row with the value total / count; `count` must be positive."""
        return cls(part, float(total) / int(count), float(total), int(count))


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """Return the index of each confidence's bin, [N] int64, among bins of equal width.

    The bins are (0, 1/15], ..., (14/15, 1], as in Guo et al. 2017. NaN goes to the first bin.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def tally(index: np.ndarray, confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return the number of tokens, summed confidence and hits of each bin, [3, BINS] float64."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=BINS).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """Return the expected calibration error times the number of tokens.

    This is the sum over bins of |hits - summed confidence|. The error is the mean of |accuracy -
    confidence|, weighted by tokens (Guo et al. 2017, equation 3).
    """
    _, confidence, hits = tally
    return float(np.abs(hits - confidence).sum())


# (the sums of a text, seq_len) -> its rows
Finish = Callable[[np.ndarray, int], list[Row]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Measure(Decorated):
    """Decorator that declares a function as a measure: `@measure("name", unit="")`.

    The function takes a chunk of `Predictions` and returns sums, an array with the same shape for
    every chunk of a text. Sums are added over all chunks. Without `finish`, they have shape
    [parts, 2], the total and the count of each part. The measure's rows have its name, and so does
    the trial's score, the value of the part "all".

    Attributes:
        unit: unit of the values, or "" if none exists.
        parts: families of parts, in row order.
        better: direction of an improvement, if any.
        label, digits: name and number of decimals shown to readers.
        items: columns of `engine.evaluation.blocks.SUMS` whose ratio is the value for an item; they
            allow claims about new text.
        uniform: see `paribus.metric.Metric`.
        of_tokens: whether values are per token, and so not comparable between tokenizers.
        finish: (sums of a text, seq_len) -> rows; None computes totals over counts. Parts without
            tokens are omitted.
        drawings: figures, with columns relative to the measure's name.
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
        """Figures of the measure, with full column names."""
        return tuple(drawing.of(self.name) for drawing in self.drawings)

    @property
    def metric(self) -> Metric:
        """Metric for the whole text; see `Metric.part` for parts."""
        shown = (self.name, self.label or readable(self.name), self.unit, self.better, "evaluation")
        uniform = {"uniform": self.uniform, "of_tokens": self.of_tokens}
        return Metric(*shown, digits=self.digits, items=self.items or "", **uniform)  # type: ignore

    def part_names(self, seq_len: int) -> tuple[str, ...]:
        """Return the names of all possible parts, in row order."""
        families = (f(seq_len) if callable(f) else f for f in self.parts)
        return tuple(chain.from_iterable(families))

    def rows(self, sums: np.ndarray, seq_len: int) -> list[Row]:
        """Compute the measure's rows from its sums over a text."""
        if self.finish is not None:
            return self.finish(sums, seq_len)
        names = self.part_names(seq_len)
        if sums.size != 2 * len(names):
            raise ValueError(
                f"the sums have shape {sums.shape}, but must have shape ({len(names)}, 2), a total "
                "and a count for each part"
            )
        pairs = zip(names, sums.reshape(-1, 2).tolist(), strict=True)
        return [Row.ratio(name, total, int(count)) for name, (total, count) in pairs if count > 0]


measure = Measure


@cache
def all_measures() -> tuple[Measure, ...]:
    """Return the built-in measures, in the order of files and of definitions in a file."""
    return tuple(declared(__name__, Measure).values())


# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


def own_measures(paths: Iterable[str], folder: Path) -> tuple[Measure, ...]:
    """Load the custom measures at the import paths `paths`; files are relative to `folder`.

    Raises ParibusError if a path is not a measure, or if its name is already used.
    """
    taken = [*TAKEN, *(measure.name for measure in all_measures())]
    return tuple(load_new(paths, "evaluation.own", "measure", Measure, folder, taken))
