"""Constants, exception, interval class, and input validation for this package.

Docstrings denote axes as S seeds (pairs), I items, K tasks, T tuning seeds or steps, B resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ALPHA = 0.05  # two-sided level of every test; intervals are 1 - alpha, equivalence 1 - 2 alpha
POWER = 0.80  # power that a plan is asked for unless it says otherwise
RESAMPLES = 10_000  # the default, and the least that a p-value may rest on
ENUMERATE_BOOTSTRAP_TO = 7  # pairs; up to here all n^n bootstrap resamples are enumerated
DESCRIPTIVE_BELOW = 5  # pairs; with fewer, a contrast describes and does not test
TIE = 1e-10  # relative; statistics closer than this are equal, so rounding cannot split a tie
LARGEST_MAGNITUDE = 1e60  # beyond this (or below its inverse) squares may leave double precision


class StatisticsError(ValueError):
    """Error for scores or parameters for which a statistic is undefined."""


@dataclass(frozen=True)
class Interval:
    """A closed confidence interval, with infinite bounds if it is unbounded."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def inside(self, margin: float) -> bool:
        """Return whether the interval lies within [-margin, margin]."""
        return -margin <= self.low and self.high <= margin


def checked_scores(scores: ArrayLike, name: str, ndim: int = 1) -> Floats:
    """Convert scores to a float64 array, and validate its shape and values.

    Raises StatisticsError for fewer than 2 rows, for non-finite values, and for values whose
    squares would overflow or underflow.
    """
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != ndim:
        raise StatisticsError(f"{name} has {array.ndim} dimensions, but needs {ndim}; reshape it")
    if array.shape[0] < 2:
        raise StatisticsError(f"{name} has n = {array.shape[0]}, but needs n >= 2; add scores")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise StatisticsError(
            f"{name}{where} is {array[tuple(where)]}, but scores must be finite; "
            "drop this pair, or cap its scores, and report it"
        )
    largest = float(np.abs(array).max())
    if largest != 0 and not 1 / LARGEST_MAGNITUDE <= largest <= LARGEST_MAGNITUDE:
        raise StatisticsError(
            f"the largest absolute value of {name} is {largest:g}, but it must be 0 or between "
            f"{1 / LARGEST_MAGNITUDE:g} and {LARGEST_MAGNITUDE:g}; rescale the scores"
        )
    return array
