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


def primary_contrast(arm, paired):
    """Return the contrast of an arm on the loss, not adjusted yet."""
    about = {"metric": "validation_loss", "primary": True, "declared": LOSS, "margin": 0.03}
    return Contrast(arm=arm, reference="b", seeds=(), by_run=paired, **about)


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
