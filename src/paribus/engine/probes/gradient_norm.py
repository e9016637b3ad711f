"""Gradient norm by parameter group; the trainer itself records the total."""

from __future__ import annotations

from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import StepView, probe
from paribus.engine.probes.reduce import GROUPS, group_norms


@probe(
    "gradient_norm",
    unit="L2",
    source="definition",
    parts=GROUPS,
    drawings=(
        Drawing("{}/value", "panels", "Gradient norm by parameter group", "L2", "stability"),
    ),
)
def gradient_norm(step: StepView) -> Tensor:
    """[R, G] |g| of each group before clipping; squares add up to that of the total norm."""
    return group_norms(step.gradients)
