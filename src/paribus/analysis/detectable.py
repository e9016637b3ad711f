"""Before a run: the smallest effect that a design can detect, given a pilot's spread."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paribus.analysis.schema import Analysis
from paribus.errors import ParibusError
from paribus.statistics import StatisticsError, minimum_detectable_effect, required_pairs
from paribus.study import Study


@dataclass(frozen=True)
class Detectable:
    """What the primary endpoint can show for one contrast, in the metric's unit.

    Attributes:
        sd: of the paired differences, and `source` says from where.
        effect: the least difference detected at the registered power with the study's seeds.
        pairs_for_margin: seed pairs that would detect a difference as large as the margin.
    """

    contrast: str
    source: str
    sd: float
    effect: float
    margin: float
    pairs_for_margin: int

    @property
    def exceeds_margin(self) -> bool:
        return self.effect > self.margin


def detectable(
    study: Study, *, pilot: Analysis | None = None, sd: float | None = None
) -> list[Detectable]:
    """One row per contrast, from the SDs of an earlier study's contrasts or a stated `sd`.

    Of the registered test, at the level of Holm's first step: alpha over the number of contrasts. A
    contrast that the pilot lacks takes the largest SD among those it has. Raises ParibusError
    where the SD is not positive, or the pilot measured no difference of the primary endpoint.
    """
    n, margin = len(study.seeds), study.primary.margin
    assert margin is not None
    if n < 2:
        raise ParibusError(f"the study has {n} seed; a contrast needs two")
    if sd is not None and not 0 < sd < math.inf:
        raise ParibusError(f"sd = {sd} must be a number greater than 0")
    if not study.contrasts:
        raise ParibusError("the study has one arm; a contrast needs two")
    seen: dict[tuple[str, str], float] = {}
    if pilot is not None:
        seen = {
            (c.arm, c.reference): c.paired.sd
            for c in pilot.contrasts
            if c.metric == study.primary.metric and c.paired is not None and c.paired.sd > 0
        }
        if not seen:
            raise ParibusError(
                f"the pilot '{pilot.study.name}' has no contrast of {study.primary.metric} with "
                "two seed pairs; state --sd instead"
            )
    # Holm's first step: the level that a contrast must reach whatever the others do.
    power, test = study.inference.power, study.inference.test
    alpha = study.inference.alpha / len(study.contrasts)
    least = minimum_detectable_effect(n, power=power, alpha=alpha, test=test)
    rows = []
    for arm, reference in study.contrasts:
        spread = sd or seen.get((arm, reference)) or max(seen.values())
        own = (arm, reference) in seen
        source = "stated" if sd else "pilot" if own else "pilot's largest"
        try:
            pairs = required_pairs(margin / spread, power=power, alpha=alpha, test=test)
        except StatisticsError as error:
            raise ParibusError(f"{arm} against {reference}: {error}") from None
        rows.append(
            Detectable(
                contrast=f"{arm} against {reference}",
                source=source,
                sd=spread,
                effect=least * spread,
                margin=margin,
                pairs_for_margin=pairs,
            )
        )
    return rows
