"""AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019), as torch.optim.AdamW computes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.kernels.adamw_step import adamw_step, is_for
from paribus.engine.training.optimizers.declare_optimizer import Update, optimizer
from paribus.study.choices import Options

Beta = Annotated[float, Field(ge=0, lt=1)]


class AdamWOptions(Options):
    """Decay rates of the moments, and what is added to the root of the second."""

    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8


def corrections(options: AdamWOptions, t: int) -> Mapping[str, float]:
    """1 - beta^(t + 1): both moments start at zero."""
    beta1, beta2 = options.betas
    return {"exp_avg": 1 - beta1 ** (t + 1), "exp_avg_sq": 1 - beta2 ** (t + 1)}


@optimizer(
    "adamw",
    slots=("exp_avg", "exp_avg_sq"),
    options=AdamWOptions,
    corrections=corrections,
    source="Loshchilov & Hutter 2019",
)
def adamw(update: Update) -> None:
    """weights -= rate (m / c1) / (sqrt(v / c2) + eps)."""
    (beta1, beta2), eps = update.options.betas, update.options.eps
    mean, square = update.slots["exp_avg"], update.slots["exp_avg_sq"]
    rows = (update.weights, update.gradients, mean, square)
    if is_for(*rows):
        adamw_step(rows, update.rates, update.t, (beta1, beta2), eps)
        return
    mean.lerp_(update.gradients, 1 - beta1)
    square.mul_(beta2).addcmul_(update.gradients, update.gradients, value=1 - beta2)
    denominator = (square / _correction(beta2, update.t)).sqrt_().add_(eps)
    step = update.rates / _correction(beta1, update.t)
    update.weights.sub_(denominator.reciprocal_().mul_(mean).mul_(step))


def _correction(beta: float, t: Tensor) -> Tensor:
    """[] float32, 1 - beta^(t + 1); float64 on the way, as it is tiny at first."""
    return (1 - torch.pow(beta, t.double() + 1)).float()
