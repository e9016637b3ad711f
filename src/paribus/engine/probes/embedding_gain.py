"""What an embedding norm has learned: its gain and bias."""

from __future__ import annotations

import torch
from torch import Tensor

from paribus.engine.probes import StepView, probe
from paribus.engine.probes.reduce import QUANTILES, absent, quantiles

PARAMETERS = {"gain": "embedding.norm.weight", "bias": "embedding.norm.bias"}
STATISTICS = ("mean", "sd", "min", *QUANTILES, "max")


@probe(
    "embedding_gain",
    unit="1",
    source="Ba et al. 2016; Zhang & Sennrich 2019",
    parts=tuple(PARAMETERS),
    statistics=STATISTICS,
)
def embedding_gain(step: StepView) -> Tensor:
    """[R, 2, S] over channels; absent in an arm without the parameter."""
    rows = []
    for name in PARAMETERS.values():
        if name not in step.weights:
            rows.append(absent(step.weights, len(STATISTICS)))
            continue
        x_RD = step.weights[name].flatten(1)
        ends = (x_RD.amin(dim=1, keepdim=True), x_RD.amax(dim=1, keepdim=True))
        mean, sd = x_RD.mean(dim=1, keepdim=True), x_RD.std(dim=1, correction=0, keepdim=True)
        rows.append(torch.cat([mean, sd, ends[0], quantiles(x_RD), ends[1]], dim=1))
    return torch.stack(rows, dim=1)
