"""Before a run: the smallest effect that a design can detect."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paribus.analysis.looks import least_effect
from paribus.analysis.schema import Analysis
from paribus.errors import ParibusError
from paribus.statistics import Result, required_pairs
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
    n, power = len(study.seeds), study.inference.power
    if n < 2:
        raise ParibusError(f"the study has {n} seed; a contrast needs two")
    if sd is not None and not 0 < sd < math.inf:
        raise ParibusError(f"sd = {sd} must be a number greater than 0")
    if not study.contrasts:
        raise ParibusError("the study has one arm; a contrast needs two")
    alpha = study.inference.alpha / study.family
    # In units of the SD of a mean: the spread shrinks with pairs, the choice does not.
    in_errors = least_effect(study, alpha) * math.sqrt(n)
    rows = []
    for endpoint in study.judged if sd is None else [study.primary]:
        metric, margin = endpoint.metric, endpoint.margin
        assert margin is not None
        spreads = _spreads(study, pilot, metric) if pilot and sd is None else {}
        for arm, reference in study.contrasts:
            if sd is not None:
                source, (spread, choice) = "stated", (sd, 0.0)
            elif (arm, reference) in spreads:
                source, (spread, choice) = "pilot", spreads[arm, reference]
            else:
                source, (spread, choice) = "pilot's largest", max(spreads.values())
            effect = in_errors * math.hypot(spread / math.sqrt(n), choice)
            pairs = required_pairs(margin, spread, lasting=choice, power=power, alpha=alpha)
            name, smallest = f"{arm} against {reference}", endpoint.smallest_effect
            rows.append(
                Detectable(metric, name, source, spread, choice, effect, margin, pairs, smallest)
            )
    return rows


def _spreads(
    study: Study, pilot: Analysis, metric: str
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return by contrast of a pilot the SD of its paired differences, and the part of its error
    from the choice of tuned values, where that is registered. Raises ParibusError without any."""
    is_tuned = study.tuning is not None and study.inference.choice != "fixed"
    spreads = {
        (c.arm, c.reference): (c.by_run.sd, c.choice.error if c.choice and is_tuned else 0.0)
        for c in pilot.contrasts
        if c.metric == metric and c.by_run and c.by_run.pairs and c.by_run.sd > 0
    }
    if not spreads:
        raise ParibusError(
            f"the pilot '{pilot.study.name}' has no contrast of {metric} with two seed pairs; "
            "state --sd instead"
        )
    return spreads
