"""Measures computed on held-out text, declared with the decorator `@measure`.

A measure is a pure function from a chunk of `Predictions` to sums. Sums are added over chunks and
converted to rows, one per part of the text (such as a token class): by default, the part's total
divided by its count. Studies refer to custom measures by import path. Measures in new files of this
folder are found automatically and covered by the contract tests.
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
    """Value of a measure for one part of the text, such as a token class or window position.

    `value` is `total` / `count` if the measure is a ratio of sums; otherwise, `total` and `count`
    are None. `evaluate_on` sets `measure` (the name) and `unit`.
    """

    part: str
    value: float
    total: float | None = None
    count: int | None = None
    measure: str = ""
    unit: str = ""

    @classmethod
    def ratio(cls, part: str, total: float, count: int) -> Row:
        """Create a row with the value total / count, where `count` is positive."""
        return cls(part, float(total) / int(count), float(total), int(count))


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """Assign confidences to equal-width bins, and return the bin indices, [N] int64.

    The bins are (0, 1/15], ..., (14/15, 1], as in Guo et al. 2017. NaN is assigned to the first.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def tally(index: np.ndarray, confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return each bin's token count, summed confidence and correct count, [3, BINS] float64."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=BINS).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """Return the expected calibration error times the number of tokens.

    This is the sum over bins of |correct count - summed confidence|. Dividing by the number of
    tokens gives the calibration error of Guo et al. 2017, equation 3.
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
    [parts, 2], the total and the count of each part. The value of the part "all" becomes the
    trial's score with the name of the measure.

    Attributes:
        unit: unit of the values, or "" if dimensionless.
        parts: groups of part names, in row order.
        better: direction of improvement: "lower", "higher" or "neither".
        label, digits: display name, and number of decimals.
        items: columns of `engine.evaluation.blocks.SUMS` whose ratio is an item's value; needed for
            inference about new text.
        uniform: see `paribus.metric.Metric`.
        of_tokens: whether values are per token, and therefore not comparable across tokenizers.
        finish: maps (sums of a text, seq_len) to rows; None divides totals by counts, and omits
            parts without tokens.
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
        return tuple(drawing.prefixed(self.name) for drawing in self.drawings)

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
        """Convert the measure's sums over a text to rows."""
        if self.finish is not None:
            return self.finish(sums, seq_len)
        names = self.part_names(seq_len)
        if sums.size != 2 * len(names):
            raise ValueError(
                f"the measure's sums have shape {sums.shape}; return shape ({len(names)}, 2), a "
                "total and a count for each part"
            )
        pairs = zip(names, sums.reshape(-1, 2).tolist(), strict=True)
        return [Row.ratio(name, total, int(count)) for name, (total, count) in pairs if count > 0]


measure = Measure


@cache
def all_measures() -> tuple[Measure, ...]:
    """Return the built-in measures, ordered by file and by position within the file."""
    return tuple(declared(__name__, Measure).values())


# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


def own_measures(paths: Iterable[str], folder: Path) -> tuple[Measure, ...]:
    """Load custom measures from import paths, with files resolved against `folder`.

    Raises ParibusError if a path does not lead to a measure, or if its name is already used.
    """
    taken = [*TAKEN, *(measure.name for measure in all_measures())]
    return tuple(load_new(paths, "evaluation.own", "measure", Measure, folder, taken))
