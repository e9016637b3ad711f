"""How large the logits are: they grow without bound where nothing holds them."""

from __future__ import annotations

import torch
from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import LOGITS, StepView, probe


@probe(
    "logits",
    unit="nats",
    source="Wortsman et al. 2023",
    statistics=("mean magnitude", "max magnitude", "log-partition"),
    modules=(LOGITS,),
    drawings=(
        Drawing("all/mean magnitude", "trend", "Logit magnitude", "mean |logit| (nats)"),
        Drawing("all/max magnitude", "trend", "Largest logit", "max |logit| (nats)"),
    ),
)
def logits(step: StepView) -> Tensor:
    """[R, S] mean and largest |z_BTV|, and the mean over tokens of log sum_v exp(z_v)."""
    z_RNV = step.outputs[LOGITS].flatten(1, 2)
    magnitude = z_RNV.abs()
    return torch.stack(
        [
            magnitude.mean(dim=(1, 2), dtype=torch.float32),
            magnitude.amax(dim=(1, 2)).float(),
            z_RNV.float().logsumexp(dim=-1).mean(dim=1),
        ],
        dim=1,
    )
