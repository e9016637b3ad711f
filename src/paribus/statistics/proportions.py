"""Counts of events: paired rates by exact McNemar, the binomial interval, and the GRIM test."""

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
from .distributions import bdtr, betaincinv


def mcnemar(only_baseline: int, only_treatment: int) -> float:
    """Exact two-sided McNemar p (McNemar 1947), binomial on the discordant pairs; 1 without any."""
    b = checked_count(only_baseline, "only_baseline", 0)
    c = checked_count(only_treatment, "only_treatment", 0)
    return min(1.0, 2 * float(bdtr(min(b, c), b + c, 0.5))) if b + c else 1.0


@dataclass(frozen=True)
class PairedRates(Result):
    """Counts of seeds at which an event struck each arm."""

    n: int
    both: int
    only_baseline: int
    only_treatment: int
    neither: int
    p_value: float

    @property
    def n_baseline(self) -> int:
        """Runs of the baseline: a pair has one of each arm."""
        return self.n

    @property
    def n_treatment(self) -> int:
        """Runs of the treatment."""
        return self.n

    @property
    def baseline_events(self) -> int:
        """Seeds at which the baseline had the event."""
        return self.both + self.only_baseline

    @property
    def treatment_events(self) -> int:
        """Seeds at which the treatment had the event."""
        return self.both + self.only_treatment

    @property
    def baseline_rate(self) -> float:
        """Share of the seeds at which the baseline had the event."""
        return self.baseline_events / self.n

    @property
    def treatment_rate(self) -> float:
        """Share of the seeds at which the treatment had the event."""
        return self.treatment_events / self.n


def paired_event_rates(baseline: ArrayLike, treatment: ArrayLike) -> PairedRates:
    """Compare how often an event (say, divergence) strikes two arms over the same seeds.

    Args: booleans (or 0 and 1) of shape (S,), S >= 1, entry s of both from seed s.
    """
    arms = [
        finite_array(baseline, "baseline"),
        finite_array(treatment, "treatment"),
    ]
    if arms[0].shape != arms[1].shape:
        raise StatisticsError(
            f"arms have {arms[0].size} and {arms[1].size} events, pairs need one each per seed"
        )
    if not np.isin(arms, (0, 1)).all():
        raise StatisticsError("events are not all 0 or 1: pass booleans, one per seed")
    first, second = (arm.astype(bool) for arm in arms)
    b, c = int((first & ~second).sum()), int((~first & second).sum())
    both, neither = int((first & second).sum()), int((~first & ~second).sum())
    return PairedRates(first.size, both, b, c, neither, mcnemar(b, c))


def clopper_pearson(events: int, n: int, *, level: float = 1 - ALPHA) -> Interval:
    """Exact binomial interval (Clopper and Pearson 1934): covers at least `level`, often more."""
    n, events = checked_count(n, "n", 1), checked_count(events, "events", 0)
    if events > n:
        raise StatisticsError(f"events = {events} is above n = {n}: pass events <= n")
    tail = (1 - checked_fraction(level, "level")) / 2
    low = betaincinv(events, n - events + 1, tail) if events > 0 else 0.0
    high = betaincinv(events + 1, n - events, 1 - tail) if events < n else 1.0
    return Interval(float(low), float(high), level)
