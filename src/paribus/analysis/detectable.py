"""Minimum detectable effects of a study design, computed before any run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paribus.analysis.looks import least_effect
from paribus.analysis.schema import Analysis
from paribus.errors import ParibusError
from paribus.statistics import required_pairs
from paribus.study import Study


@dataclass(frozen=True)
class Detectable:
    """Minimum detectable effect of one contrast on one primary endpoint, in the metric's unit.

    Attributes:
        source: origin of `sd`: "stated", "pilot" or "pilot's largest".
        sd: SD of the paired differences, or of one run if runs are unpaired.
        effect: minimum difference that the study detects with its registered power.
        pairs_for_margin: number of seed pairs, or of runs per arm, needed to detect a difference
            equal to the margin. None without a margin, or if the error from hyperparameter
            selection is too large for any number.
        smallest_effect: smallest effect worth detecting, or None if it is not set.
    """

    metric: str
    contrast: str
    source: str
    sd: float
    effect: float
    margin: float | None
    pairs_for_margin: int | None
    smallest_effect: float | None

    @property
    def exceeds_margin(self) -> bool:
        """True if the minimum detectable effect exceeds the margin."""
        return self.margin is not None and self.effect > self.margin

    @property
    def could_miss(self) -> bool:
        """True if the minimum detectable effect exceeds the smallest effect worth detecting."""
        return self.smallest_effect is not None and self.effect > self.smallest_effect


def detectable(
    study: Study, *, pilot: Analysis | None = None, sd: float | None = None
) -> list[Detectable]:
    """Return the minimum detectable effect of each primary endpoint and contrast.

    The significance level is alpha / family size, as in the first step of Holm's method.

    Args:
        study: the planned study.
        pilot: an earlier analysis that provides SDs. Contrasts without a counterpart in the pilot
            use its largest SD.
        sd: SD of the paired differences (or of one run, if runs are unpaired) on the first primary
            endpoint, as an alternative to a pilot.

    Raises:
        ParibusError: if the study has one seed, `sd` is not positive, or the pilot has no contrast
            on a primary endpoint.
    """
    n, power = len(study.seeds), study.inference.power
    if n < 2:
        raise ParibusError(f"the study has {n} seed, but a contrast needs two; add one to seeds")
    if sd is not None and not 0 < sd < math.inf:
        raise ParibusError(f"sd = {sd} is invalid; specify a finite number greater than 0")
    alpha = study.inference.alpha / study.family
    # In units of the SD of a mean: the spread shrinks with pairs, the choice does not.
    samples = 1 if study.is_paired else 2
    in_errors = least_effect(study, alpha) * math.sqrt(n / samples)
    asked = {"power": power, "alpha": alpha, "df_each": float(samples)}
    rows = []
    for endpoint in study.judged if sd is None else [study.primary]:
        metric, margin = endpoint.metric, endpoint.margin
        if sd is not None:
            known = dict.fromkeys(study.contrasts, (sd, 0.0))
        else:
            known = _spreads(study, pilot, metric) if pilot else {}
        for pair in study.contrasts:
            spread, choice = known.get(pair) or max(known.values())
            source = "stated" if sd else "pilot" if pair in known else "pilot's largest"
            spread_of_pair = spread * math.sqrt(samples)
            effect = in_errors * math.hypot(spread_of_pair / math.sqrt(n), choice)
            pairs = (
                required_pairs(margin, spread_of_pair, lasting=choice, **asked) if margin else None
            )
            name, smallest = " against ".join(pair), endpoint.smallest_effect
            rows.append(Detectable(metric, name, source, spread, effect, margin, pairs, smallest))
    return rows


def _spreads(
    study: Study, pilot: Analysis, metric: str
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return {(arm, reference): (SD, tuning error)} from a pilot with the same design.

    The SD is that of paired differences, or of one run if runs are unpaired.

    The tuning error is 0 if the study ignores it. Raises ParibusError if the pilot has no usable
    contrast.
    """
    is_tuned = study.tuning is not None and study.inference.choice != "fixed"
    spreads = {
        (c.arm, c.reference): (c.by_run.sd, c.choice.error if c.choice and is_tuned else 0.0)
        for c in pilot.contrasts
        if c.metric == metric and c.by_run and bool(c.by_run.pairs) == study.is_paired
        if c.by_run.sd > 0
    }
    if not spreads:
        raise ParibusError(
            f"the pilot '{pilot.study.name}' has no contrast on {metric} with two or more "
            f"{'seed pairs' if study.is_paired else 'unpaired runs per arm'}; pass --sd instead"
        )
    return spreads
