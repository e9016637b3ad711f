"""Before a run with looks: its boundaries, what it can detect, and the seeds that it will take."""

from __future__ import annotations

from dataclasses import dataclass

from paribus.analysis.sampling import plan_of
from paribus.statistics import (
    Boundary,
    Characteristics,
    characteristics,
    detectable_effect,
    minimum_detectable_effect,
    paired_t_power,
)
from paribus.study import Study

# True differences that a plan is shown for, in SDs of the paired differences.
EFFECTS = (0.0, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Expected:
    """What a plan takes where every contrast has one true difference.

    Attributes:
        effect: the difference, in SDs.
        found: what happens in simulated studies.
        fixed_power: of one contrast with all seeds and no looks, at the level of Holm's first step.
    """

    effect: float
    found: Characteristics
    fixed_power: float


@dataclass(frozen=True)
class PlannedLooks:
    """A plan of looks, worked out.

    Attributes:
        first, last: boundaries at the level of Holm's first step and of its last.
        margin: in SDs; None where the spread is not known, and equivalence is then left out.
    """

    first: tuple[Boundary, ...]
    last: tuple[Boundary, ...]
    expected: tuple[Expected, ...]
    margin: float | None


def planned_looks(study: Study, sd: float | None = None) -> PlannedLooks | None:
    """Of a study with looks; None of one without.

    Args: sd: of the paired differences of the primary endpoint, where known.
    """
    looks = plan_of(study)
    if looks is None or study.plan is None:
        return None
    alpha, family, endpoints = study.inference.alpha, study.family, len(study.judged)
    margin = study.primary.margin / sd if sd and study.primary.margin else None
    effects: list[float] = sorted({*EFFECTS, *([round(margin, 2)] if margin else [])})
    return PlannedLooks(
        looks.boundaries(alpha / family),
        looks.boundaries(alpha),
        tuple(
            Expected(
                effect,
                characteristics(
                    looks,
                    (effect,) * family,
                    endpoints=endpoints,
                    alpha=alpha,
                    margin=margin,
                    futility=study.plan.futility,
                ),
                paired_t_power(effect, looks.pairs[-1], alpha=alpha / family),
            )
            for effect in effects
        ),
        margin,
    )


def least_effect(study: Study, alpha: float) -> float:
    """The least difference, in SDs, that the study detects at level `alpha` of one contrast."""
    power, looks = study.inference.power, plan_of(study)
    if looks is not None:
        return detectable_effect(looks, alpha=alpha, power=power)
    test = study.inference.test
    return minimum_detectable_effect(len(study.seeds), power=power, alpha=alpha, test=test)
