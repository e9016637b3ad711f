"""The inference that a study registered, for any two rows of scores."""

from __future__ import annotations

from collections.abc import Sequence

from paribus.statistics import PairedContrast, paired_contrast
from paribus.study import Study


def infer(
    study: Study,
    baseline: Sequence[float],
    treatment: Sequence[float],
    margin: float | None = None,
) -> PairedContrast:
    """Treatment against baseline, one score per seed in each, at the level that is registered."""
    inference = study.inference
    return paired_contrast(
        baseline,
        treatment,
        seed=inference.seed,
        margin=margin,
        alpha=inference.alpha,
        resamples=inference.resamples,
    )
