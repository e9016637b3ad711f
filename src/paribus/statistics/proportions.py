"""Exact tests for comparing event rates between two arms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike


def mcnemar(only_baseline: int, only_treatment: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (McNemar 1947).

    The arguments are the numbers of pairs in which only one of the runs had the event.
    """
    discordant = only_baseline + only_treatment
    fewer = min(only_baseline, only_treatment)
    return min(1.0, 2 * float(scipy.special.bdtr(fewer, discordant, 0.5))) if discordant else 1.0


def fisher_exact(first: int, second: int, n_first: int, n_second: int) -> float:
    """Return the two-sided p-value of Fisher's exact test for first/n_first = second/n_second.

    The p-value is the total probability of all tables with the same margins that are at most as
    likely as the observed table.
    """
    struck = first + second
    tables = range(max(0, struck - n_second), min(struck, n_first) + 1)
    ways = [math.comb(n_first, k) * math.comb(n_second, struck - k) for k in tables]
    seen = ways[first - tables.start]
    return sum(way for way in ways if way <= seen) / sum(ways)


@dataclass(frozen=True)
class EventRates:
    """Event counts in two arms, with the p-value of an exact two-sided test.

    The test is McNemar's for pairs, and Fisher's for unpaired runs.

    Attributes:
        n_baseline, n_treatment: number of runs in each arm.
        baseline_events, treatment_events: number of runs with the event in each arm.
        both: number of pairs in which both runs had the event; None for unpaired runs.
    """

    n_baseline: int
    n_treatment: int
    baseline_events: int
    treatment_events: int
    p_value: float
    both: int | None = None

    @property
    def n(self) -> int:
        """Number of pairs, or of runs in the smaller arm."""
        return min(self.n_baseline, self.n_treatment)

    @property
    def baseline_rate(self) -> float:
        """Fraction of baseline runs with the event."""
        return self.baseline_events / self.n_baseline

    @property
    def treatment_rate(self) -> float:
        """Fraction of treatment runs with the event."""
        return self.treatment_events / self.n_treatment


def event_rates(baseline: ArrayLike, treatment: ArrayLike, *, paired: bool = True) -> EventRates:
    """Compare the rates of an event, such as divergence, between two arms.

    Args:
        baseline, treatment: whether each run had the event, boolean arrays of shapes (A,) and
            (B,); for pairs, in the same order of seeds.
        paired: whether runs are paired by seed.
    """
    arms = np.asarray(baseline), np.asarray(treatment)
    (a, n_a), (b, n_b) = ((int(arm.sum()), arm.size) for arm in arms)
    if not paired:
        return EventRates(n_a, n_b, a, b, fisher_exact(a, b, n_a, n_b))
    both = int((arms[0] * arms[1]).sum())
    return EventRates(n_a, n_b, a, b, mcnemar(a - both, b - both), both)
