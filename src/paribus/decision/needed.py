"""How many seed pairs would resolve what is inconclusive."""

from __future__ import annotations

import math

from paribus.analysis import Analysis, Contrast
from paribus.decision.row import Row
from paribus.statistics import mcnemar

MOST_PAIRS = 1000  # stop searching beyond this


def pairs_needed(analysis: Analysis, contrast: Contrast, row: Row) -> int | None:
    """Seed pairs that would resolve an inconclusive verdict; None where no number is known.

    They would detect or exclude a difference of the margin's size with the registered power (or
    exclude a loss of that size, where an arm has to be no worse), by the test that decided, at the
    level of Holm's first step, and with the spread seen here. Where trials diverged, so many more
    are counted in as were lost of the pairs here.
    """
    study = analysis.study
    power, of_events = study.inference.power, study.inference.alpha / len(study.contrasts)
    alpha = study.inference.alpha / study.family
    if row.open not in ("quality", "not worse", "cure", "harm"):
        return None
    if row.open == "cure":
        return _pairs_to_show_events(analysis, contrast.arm, of_events, harm=False)
    if row.open == "harm":
        return _pairs_to_show_events(analysis, contrast.arm, of_events, harm=True)
    if not contrast.tested:
        return _pairs_to_show_events(analysis, contrast.arm, of_events, harm=True)
    test, says = contrast.test, contrast.decided
    if test is None or says is None or says.descriptive_only or contrast.margin is None:
        return None  # of fewer than 5 pairs the spread is a guess
    if any(contrast.censored):
        return None  # more seeds with the same budget show no more of what lies beyond it
    if not (math.isfinite(says.interval.low) and math.isfinite(says.interval.high)):
        return None  # the test that decides has no spread to plan from
    detects = test.pairs_needed(contrast.margin, power=power, alpha=alpha)
    # Two one-sided tests of a true difference of 0 both reject with the power asked for where
    # each does with probability (1 + power) / 2.
    excludes = test.pairs_needed(contrast.margin, power=(1 + power) / 2, alpha=2 * alpha)
    if row.open == "not worse":
        excludes = detects = test.pairs_needed(contrast.margin, power=power, alpha=2 * alpha)
    if detects is None or excludes is None:
        return None
    stability = analysis.stability(contrast.arm)
    trained = stability.any_event.n if stability else says.n
    return max(math.ceil(max(detects, excludes) * trained / says.n), trained + 1)


def _pairs_to_show_events(analysis: Analysis, arm: str, alpha: float, *, harm: bool) -> int | None:
    """Pairs at which the rates of events seen here would be significant by McNemar's test.

    Args: harm: that the arm causes them, else that it cures them; None where rates do not say so.
    """
    stability = analysis.stability(arm)
    if stability is None:
        return None
    rates = stability.any_event
    if rates.only_baseline == rates.only_treatment:
        return None
    if (rates.only_treatment > rates.only_baseline) != harm:
        return None
    for n in range(rates.n + 1, MOST_PAIRS + 1):
        cured, caused = (
            round(n * count / rates.n) for count in (rates.only_baseline, rates.only_treatment)
        )
        if mcnemar(cured, caused) <= alpha:
            return n
    return None
