"""How far a step moves the weights, relative to their size."""

from __future__ import annotations

from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import StepView, probe
from paribus.engine.probes.reduce import GROUPS, group_norms


@probe(
    "update_ratio",
    unit="1",
    source="You et al. 2017, LARS",
    parts=GROUPS,
    updates=True,
    drawings=(
        Drawing("{}/value", "panels", "Size of a step relative to the weights", "|Δw| / |w|"),
    ),
)
def update_ratio(step: StepView) -> Tensor:
    """[R, G] |new weights - weights| / |weights|, weight decay included.

    Absent while all weights of a group are zero.
    """
    ratio = group_norms(step.updates) / group_norms(step.weights)
    return ratio.masked_fill(ratio.isinf(), float("nan"))
