"""Before a run: the smallest effect that a design can detect, and whether it sees what matters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paribus.analysis.looks import least_effect
from paribus.analysis.schema import Analysis
from paribus.errors import ParibusError
from paribus.statistics import DESCRIPTIVE_BELOW, StatisticsError, required_pairs
from paribus.study import Endpoint, Study


@dataclass(frozen=True)
class Detectable:
    """What a primary endpoint can show for one contrast, in the metric's unit.

    Attributes:
        sd: of the paired differences, and `source` says from where.
        effect: the least difference detected at the registered power with the study's seeds.
        pairs_for_margin: seed pairs that would detect a difference as large as the margin.
        smallest_effect: worth detecting; None where none is registered.
    """

    metric: str
    contrast: str
    source: str
    sd: float
    effect: float
    margin: float
    pairs_for_margin: int
    smallest_effect: float | None = None

    @property
    def exceeds_margin(self) -> bool:
        """Return whether what can be detected is larger than what is too small to matter."""
        return self.effect > self.margin

    @property
    def could_miss(self) -> bool:
        """Return whether the smallest effect worth detecting is likelier missed than registered."""
        return self.smallest_effect is not None and self.effect > self.smallest_effect


@dataclass(frozen=True)
class Sight:
    """Whether a design can detect the smallest effect worth detecting, before anything is known.

    Attributes:
        sd: the largest SD of paired differences at which it does; None where nothing is tested.
        why_not: why it cannot, whatever the spread; empty where it can.
    """

    metric: str
    smallest_effect: float
    sd: float | None
    why_not: str = ""


def sights(study: Study) -> list[Sight]:
    """Of every primary endpoint with a smallest effect, by the registered test in its family."""
    asked = [(e.metric, e.smallest_effect) for e in study.judged if e.smallest_effect is not None]
    if not asked or not study.contrasts:
        return []
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        why = f"fewer than {DESCRIPTIVE_BELOW} seeds are described, not tested"
        return [Sight(metric, least, None, why) for metric, least in asked]
    in_sds = least_effect(study, study.inference.alpha / study.family)
    return [Sight(metric, least, least / in_sds) for metric, least in asked]


def detectable(
    study: Study, *, pilot: Analysis | None = None, sd: float | None = None
) -> list[Detectable]:
    """One row per primary endpoint and contrast, from the SDs of an earlier study's contrasts; or
    per contrast of the first endpoint, from a stated `sd`.

    Of the registered test, at the level of Holm's first step: alpha over the family. A contrast
    that the pilot lacks takes the largest SD among those it has. Raises ParibusError where the SD
    is not positive, or the pilot measured no difference of a primary endpoint.
    """
    if len(study.seeds) < 2:
        raise ParibusError(f"the study has {len(study.seeds)} seed; a contrast needs two")
    if sd is not None and not 0 < sd < math.inf:
        raise ParibusError(f"sd = {sd} must be a number greater than 0")
    if not study.contrasts:
        raise ParibusError("the study has one arm; a contrast needs two")
    if sd is not None or pilot is None:
        return _of_endpoint(study, study.primary, {}, sd)
    return [
        row
        for endpoint in study.judged
        for row in _of_endpoint(study, endpoint, _seen(pilot, endpoint), None)
    ]


def _seen(pilot: Analysis, endpoint: Endpoint) -> dict[tuple[str, str], float]:
    """SD of the paired differences in a pilot, by contrast. Raises ParibusError for none."""
    seen = {
        (c.arm, c.reference): c.paired.sd
        for c in pilot.contrasts
        if c.metric == endpoint.metric and c.paired is not None and c.paired.sd > 0
    }
    if not seen:
        raise ParibusError(
            f"the pilot '{pilot.study.name}' has no contrast of {endpoint.metric} with "
            "two seed pairs; state --sd instead"
        )
    return seen


def _of_endpoint(
    study: Study, endpoint: Endpoint, seen: dict[tuple[str, str], float], sd: float | None
) -> list[Detectable]:
    margin, inference = endpoint.margin, study.inference
    assert margin is not None
    # Holm's first step: the level that a contrast must reach whatever the others do.
    alpha = inference.alpha / study.family
    least = least_effect(study, alpha)
    rows = []
    for arm, reference in study.contrasts:
        spread = sd or seen.get((arm, reference)) or max(seen.values())
        source = "stated" if sd else "pilot" if (arm, reference) in seen else "pilot's largest"
        try:
            pairs = required_pairs(
                margin / spread, power=inference.power, alpha=alpha, test=inference.test
            )
        except StatisticsError as error:
            raise ParibusError(f"{arm} against {reference}: {error}") from None
        rows.append(
            Detectable(
                metric=endpoint.metric,
                contrast=f"{arm} against {reference}",
                source=source,
                sd=spread,
                effect=least * spread,
                margin=margin,
                pairs_for_margin=pairs,
                smallest_effect=endpoint.smallest_effect,
            )
        )
    return rows
