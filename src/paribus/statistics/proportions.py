"""Exact tests of how often an event occurs in two arms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike


def mcnemar(only_baseline: int, only_treatment: int) -> float:
    """Return McNemar's exact two-sided p (McNemar 1947), or 1 if no pairs are discordant."""
    discordant = only_baseline + only_treatment
    fewer = min(only_baseline, only_treatment)
    return min(1.0, 2 * float(scipy.special.bdtr(fewer, discordant, 0.5))) if discordant else 1.0


def fisher_exact(first: int, second: int, n_first: int, n_second: int) -> float:
    """Return Fisher's exact two-sided p for `first` of `n_first` against `second` of `n_second`.

    It is the total probability of all tables with the same margins that are no more likely than
    the observed table.
    """
    struck = first + second
    tables = range(max(0, struck - n_second), min(struck, n_first) + 1)
    ways = [math.comb(n_first, k) * math.comb(n_second, struck - k) for k in tables]
    seen = ways[first - tables.start]
    return sum(way for way in ways if way <= seen) / sum(ways)


@dataclass(frozen=True)
class EventRates:
    """Numbers of runs with an event in two arms, with an exact two-sided p.

    The p is McNemar's for pairs, and Fisher's (1935) for unpaired runs.

    Attributes:
        both: number of pairs in which both runs had the event; None if runs are unpaired.
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
        """Share of the baseline's runs that had the event."""
        return self.baseline_events / self.n_baseline

    @property
    def treatment_rate(self) -> float:
        """Share of the treatment's runs that had the event."""
        return self.treatment_events / self.n_treatment


def event_rates(baseline: ArrayLike, treatment: ArrayLike, *, paired: bool = True) -> EventRates:
    """Compare how often an event (such as divergence) occurs in two arms.

    Args:
        baseline, treatment: whether each run had the event, of shapes (A,) and (B,); if paired,
            entry s of both is from seed s.
    """
    arms = np.asarray(baseline), np.asarray(treatment)
    (a, n_a), (b, n_b) = ((int(arm.sum()), arm.size) for arm in arms)
    if not paired:
        return EventRates(n_a, n_b, a, b, fisher_exact(a, b, n_a, n_b))
    both = int((arms[0] * arms[1]).sum())
    return EventRates(n_a, n_b, a, b, mcnemar(a - both, b - both), both)
