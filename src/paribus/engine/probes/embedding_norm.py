"""L2 norm at the first block's input, by token class: what the arms of the flagship change."""

from __future__ import annotations

import torch
from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import StepView, probe
from paribus.engine.probes.reduce import CLASSES, QUANTILES, by_class, quantiles


@probe(
    "embedding_norm",
    unit="L2",
    source="definition",
    label="norm entering block 1",
    digits=2,
    parts=CLASSES,
    statistics=("mean", *QUANTILES),
    modules=("embedding",),
    drawings=(
        Drawing("all/mean", "trend", "Norm entering block 1", "mean norm (L2)", in_text=True),
        Drawing(
            "{}/mean",
            "spread",
            "Norm entering block 1 by token class",
            "norm entering block 1 (L2)",
            in_text=True,
        ),
    ),
)
def embedding_norm(step: StepView) -> Tensor:
    """[R, 1 + C, S] of |x_BTD| over the step's tokens: of all, and of each class of input token."""
    norms_RN = step.outputs["embedding"].float().norm(dim=-1).flatten(1)
    each = by_class(norms_RN, step.token_classes[step.tokens].flatten(1))
    return torch.cat([each.nanmean(dim=-1, keepdim=True), quantiles(each)], dim=-1)
