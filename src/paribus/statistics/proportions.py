"""Counts of events: exact tests of two arms, and the binomial interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .conventions import (
    ALPHA,
    Interval,
    Result,
    StatisticsError,
    checked_count,
    checked_fraction,
    finite_array,
)
from .distributions import bdtr, betaincinv, fisher_exact


def mcnemar(only_baseline: int, only_treatment: int) -> float:
    """Exact two-sided McNemar p (McNemar 1947), binomial on the discordant pairs; 1 without any."""
    b = checked_count(only_baseline, "only_baseline", 0)
    c = checked_count(only_treatment, "only_treatment", 0)
    return min(1.0, 2 * float(bdtr(min(b, c), b + c, 0.5))) if b + c else 1.0


@dataclass(frozen=True)
class EventRates(Result):
    """Counts of runs that an event struck in two arms, with an exact two-sided p: McNemar's of
    pairs, Fisher's (1935) where runs are no pairs.

    Attributes:
        both: pairs of which it struck both runs; None where runs are no pairs.
    """

    n_baseline: int
    n_treatment: int
    baseline_events: int
    treatment_events: int
    p_value: float
    both: int | None = None

    @property
    def n(self) -> int:
        """Pairs, or runs of the arm that has fewer."""
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
    """Compare how often an event (say, divergence) strikes two arms.

    Args: booleans (or 0 and 1) of shapes (A,) and (B,); of pairs, entry s of both is of seed s.
    """
    arms = [finite_array(baseline, "baseline"), finite_array(treatment, "treatment")]
    if paired and arms[0].size != arms[1].size:
        raise StatisticsError(
            f"arms have {arms[0].size} and {arms[1].size} events, pairs need one each per seed"
        )
    if not all(np.isin(arm, (0, 1)).all() for arm in arms):
        raise StatisticsError("events are not all 0 or 1: pass booleans, one per run")
    (a, n_a), (b, n_b) = ((int(arm.sum()), arm.size) for arm in arms)
    if not paired:
        return EventRates(n_a, n_b, a, b, fisher_exact(a, b, n_a, n_b))
    both = int((arms[0] * arms[1]).sum())
    return EventRates(n_a, n_b, a, b, mcnemar(a - both, b - both), both)


def clopper_pearson(events: int, n: int, *, level: float = 1 - ALPHA) -> Interval:
    """Exact binomial interval (Clopper and Pearson 1934): covers at least `level`, often more."""
    n, events = checked_count(n, "n", 1), checked_count(events, "events", 0)
    if events > n:
        raise StatisticsError(f"events = {events} is above n = {n}: pass events <= n")
    tail = (1 - checked_fraction(level, "level")) / 2
    low = betaincinv(events, n - events + 1, tail) if events > 0 else 0.0
    high = betaincinv(events + 1, n - events, 1 - tail) if events < n else 1.0
    return Interval(float(low), float(high), level)
