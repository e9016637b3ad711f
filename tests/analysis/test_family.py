"""Error rates of a family of contrasts, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paribus.analysis import Contrast
from paribus.analysis.analyse import adjusted
from paribus.metric import Metric
from paribus.statistics import paired_contrast

LOSS = Metric("validation_loss", "validation loss", "nats/token", "lower", "evaluation")


def family_of(rng: np.random.Generator, arms: int, n: int) -> list[Contrast]:
    """Primary contrasts of `arms` arms against one baseline, with a true difference of 0."""
    baseline = rng.normal(2.5, 0.02, n)
    made = []
    for arm in range(arms):
        scores = rng.normal(2.5, 0.02, n)
        paired = paired_contrast(baseline, scores, seed=0, margin=0.03, family=arms)
        made.append(primary_contrast(f"arm-{arm}", paired))
    return adjusted(made, 0.05)


def primary_contrast(arm, paired):
    """Return the contrast of an arm on the loss, not adjusted yet."""
    about = {"metric": "validation_loss", "primary": True, "declared": LOSS, "margin": 0.03}
    return Contrast(arm=arm, reference="b", seeds=(), by_run=paired, **about)


@pytest.mark.slow
def test_the_family_of_a_study_is_held_at_its_level():
    """Three arms, five pairs: any false positive of the family in at most 5% of null studies."""
    rng, studies = np.random.default_rng(12), 4_000
    found = [any(c.significant(0.05) for c in family_of(rng, arms=3, n=5)) for _ in range(studies)]
    assert np.mean(found) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)
    # The contrasts share a baseline; Holm is then a little conservative, and no more than that.
    assert np.mean(found) >= 0.04 - 4 * math.sqrt(0.04 * 0.96 / studies)


@pytest.mark.parametrize("studies", [100, pytest.param(4_000, marks=pytest.mark.slow)])
def test_equivalence_is_held_over_the_family(studies):
    """Two arms whose true difference is the margin: claimed equal of any in at most 5%."""
    rng, claimed = np.random.default_rng(13), 0
    for _ in range(studies):
        arms = []
        for arm in range(2):
            baseline = rng.normal(2.5, 0.01, 5)
            scores = baseline + 0.03 + rng.normal(0, 0.01, 5)
            paired = paired_contrast(baseline, scores, seed=0, margin=0.03, family=2)
            arms.append(primary_contrast(f"{arm}", paired))
        claimed += any(c.equivalent(0.05) for c in adjusted(arms, 0.05))
    assert claimed / studies <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)
