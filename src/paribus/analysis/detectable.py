"""Before a run: the smallest effect that a design can detect, and whether it sees what matters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paribus.analysis.looks import least_effect
from paribus.analysis.schema import Analysis
from paribus.errors import ParibusError
from paribus.statistics import DESCRIPTIVE_BELOW, Result, required_pairs
from paribus.study import Study


@dataclass(frozen=True)
class Detectable(Result):
    """The effects that a primary endpoint can show for one contrast, in the metric's unit.

    Attributes:
        sd: of the paired differences, and `source` says from where.
        choice: SD of the difference that came from choosing tuned values in the pilot.
        effect: the least difference detected at the registered power with the study's seeds.
        pairs_for_margin: seed pairs that would detect a difference as large as the margin; None
            where no number would, as the choice of tuned values is too uncertain.
        smallest_effect: worth detecting; None where none is registered.
    """

    metric: str
    contrast: str
    source: str
    sd: float
    choice: float
    effect: float
    margin: float
    pairs_for_margin: int | None
    smallest_effect: float | None

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
    """The spread up to which a design detects the smallest effect worth detecting.

    Attributes:
        sd: the largest SD of paired differences at which it does; None where nothing is tested.
    """

    metric: str
    smallest_effect: float
    sd: float | None


def sights(study: Study) -> list[Sight]:
    """Return one for every primary endpoint with a smallest effect, by the registered test."""
    asked = [(e.metric, e.smallest_effect) for e in study.judged if e.smallest_effect is not None]
    if not asked or not study.contrasts or not study.is_paired:  # these are SDs of differences
        return []
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        return [Sight(metric, smallest, None) for metric, smallest in asked]
    in_sds = least_effect(study, study.inference.alpha / study.family)
    return [Sight(metric, smallest, smallest / in_sds) for metric, smallest in asked]


def detectable(
    study: Study, *, pilot: Analysis | None = None, sd: float | None = None
) -> list[Detectable]:
    """Return the smallest detectable change for each primary endpoint and contrast. The SD is
    `sd` if given (first endpoint only), else from `pilot`.

    Of the registered test, at the level of Holm's first step: alpha over the family, which a
    contrast must reach whatever the others do. A contrast that the pilot lacks takes the largest SD
    among those it has. Raises ParibusError where the SD is not positive, or the pilot measured no
    difference of a primary endpoint.
    """
    if len(study.seeds) < 2:
        raise ParibusError(f"the study has {len(study.seeds)} seed; a contrast needs two")
    if sd is not None and not 0 < sd < math.inf:
        raise ParibusError(f"sd = {sd} must be a number greater than 0")
    if not study.contrasts:
        raise ParibusError("the study has one arm; a contrast needs two")
    n, power, level = len(study.seeds), study.inference.power, study.inference.alpha / study.family
    # In units of the SD of a mean: the spread shrinks with pairs, the choice does not.
    in_errors, rows = least_effect(study, level) * math.sqrt(n), []
    for endpoint in study.judged if sd is None else [study.primary]:
        assert endpoint.margin is not None
        spreads = {} if pilot is None else _spreads(study, pilot, endpoint.metric)
        for arm, reference in study.contrasts:
            if sd is not None:
                source, spread, choice = "stated", sd, 0.0
            elif (arm, reference) in spreads:
                source, (spread, choice) = "pilot", spreads[arm, reference]
            else:
                source, (spread, choice) = "pilot's largest", max(spreads.values())
            rows.append(
                Detectable(
                    metric=endpoint.metric,
                    contrast=f"{arm} against {reference}",
                    source=source,
                    sd=spread,
                    choice=choice,
                    effect=in_errors * math.hypot(spread / math.sqrt(n), choice),
                    margin=endpoint.margin,
                    pairs_for_margin=required_pairs(
                        endpoint.margin, spread, lasting=choice, power=power, alpha=level
                    ),
                    smallest_effect=endpoint.smallest_effect,
                )
            )
    return rows


def _spreads(
    study: Study, pilot: Analysis, metric: str
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return by contrast of a pilot the SD of its paired differences, and the part of its error
    from the choice of tuned values, where that is registered. Raises ParibusError without any."""
    is_tuned = study.tuning is not None and study.inference.choice != "fixed"
    spreads = {
        (c.arm, c.reference): (c.paired.sd, c.choice.error if c.choice and is_tuned else 0.0)
        for c in pilot.contrasts
        if c.metric == metric and c.paired and c.paired.sd > 0
    }
    if not spreads:
        raise ParibusError(
            f"the pilot '{pilot.study.name}' has no contrast of {metric} with two seed pairs; "
            "state --sd instead"
        )
    return spreads
