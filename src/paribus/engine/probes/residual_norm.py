"""L2 norm of the residual stream across depth."""

from __future__ import annotations

import torch
from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import EVERY_BLOCK, StepView, probe
from paribus.engine.probes.reduce import QUANTILES, depths, quantiles


@probe(
    "residual_norm",
    unit="L2",
    source="definition",
    parts=depths,
    statistics=("mean", *QUANTILES),
    modules=("embedding", EVERY_BLOCK),
    drawings=(
        Drawing(
            "{}/mean",
            "profile",
            "Residual norm across depth",
            "mean norm of the residual stream (L2)",
            across="before block",
            in_text=True,
        ),
    ),
)
def residual_norm(step: StepView) -> Tensor:
    """[R, depths, S] of |x_BTD| over the step's tokens, before every block and after the last."""
    norms = [x.float().norm(dim=-1).flatten(1) for x in step.block_inputs]
    norms_RLN = torch.stack(norms, dim=1)
    return torch.cat([norms_RLN.mean(dim=-1, keepdim=True), quantiles(norms_RLN)], dim=-1)
