"""AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019), as in torch.optim.AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.ops.functional import adamw_step
from paribus.engine.training.optimizers import Update, optimizer
from paribus.study.choices import Options

Beta = Annotated[float, Field(ge=0, lt=1)]


class AdamWOptions(Options):
    """Options of AdamW.

    Attributes:
        betas: Decay rates of the two moments.
        eps: Term added to the denominator.
    """

    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8


def corrections(options: AdamWOptions, t: int) -> Mapping[str, float]:
    """Return the bias-correction divisors of both moments at step t, 1 - beta^(t + 1)."""
    beta1, beta2 = options.betas
    return {"exp_avg": 1 - beta1 ** (t + 1), "exp_avg_sq": 1 - beta2 ** (t + 1)}


def correction(beta: float, t: Tensor) -> Tensor:
    """Return the bias-correction divisor 1 - beta^(t + 1), float32.

    It is computed in float64 to avoid cancellation in the first steps.
    """
    return (1 - torch.pow(beta, t.double() + 1)).float()


@optimizer(
    "adamw",
    slots=("exp_avg", "exp_avg_sq"),
    options=AdamWOptions,
    corrections=corrections,
)
def adamw(update: Update) -> None:
    """Perform one AdamW step.

    Updates the moments m and v, and sets weights -= rate (m / c1) / (sqrt(v / c2) + eps), with bias
    corrections c1 and c2.
    """
    (beta1, beta2), eps = update.options.betas, update.options.eps
    mean, square = update.slots["exp_avg"], update.slots["exp_avg_sq"]
    rows = (update.weights, update.gradients, mean, square)
    if adamw_step(rows, update.rates, update.t, (beta1, beta2), eps):
        return
    mean.lerp_(update.gradients, 1 - beta1)
    square.mul_(beta2).addcmul_(update.gradients, update.gradients, value=1 - beta2)
    denominator = (square / correction(beta2, update.t)).sqrt_().add_(eps)
    direction = denominator.reciprocal_().mul_(mean)
    update.weights.sub_(direction.mul_(update.rates / correction(beta1, update.t)))
