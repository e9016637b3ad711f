"""The inference that a study registered, for any two rows of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from paribus.statistics import (
    MacroContrast,
    OneLook,
    PairedContrast,
    Stages,
    macro_contrast,
    paired_contrast,
)
from paribus.study import Study


def infer(
    study: Study,
    baseline: Sequence[float],
    treatment: Sequence[float],
    margin: float | None = None,
    *,
    family: int = 1,
    resolution: float | None = None,
    design: OneLook | Stages | None = None,
) -> PairedContrast:
    """Treatment against baseline, one score per seed in each, by the test that is registered.

    Args: family: hypotheses tested together, this one included; design: how the pairs were sampled.
    """
    about = _registered(study, margin, family, resolution)
    return paired_contrast(baseline, treatment, design=design, **about)


def infer_items(
    study: Study,
    baseline: Sequence[ArrayLike],
    treatment: Sequence[ArrayLike],
    margin: float | None = None,
    *,
    family: int = 1,
    resolution: float | None = None,
    design: OneLook | Stages | None = None,
) -> MacroContrast:
    """Return the same of tasks of shape (S, I), for a claim about new items."""
    about = _registered(study, margin, family, resolution)
    return macro_contrast(baseline, treatment, target="new items", design=design, **about)


def _registered(
    study: Study, margin: float | None, family: int, resolution: float | None
) -> dict[str, Any]:
    inference = study.inference
    return {
        "test": inference.test,
        "seed": inference.seed,
        "alpha": inference.alpha,
        "power": inference.power,
        "resamples": inference.resamples,
        "margin": margin,
        "family": family,
        "resolution": resolution,
    }
