"""Schedule-free AdamW (Defazio et al. 2024, The road less scheduled), as in the authors' package.

Gradients are computed at y = (1 - beta1) z + beta1 x. AdamW updates z, and x is a weighted mean of
all z. The trained weights are y; x is evaluated, saved and exported. Use a constant
`training.schedule`, optionally with warmup.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.training.optimizers import Slots, Update, like_parameter, optimizer
from paribus.engine.training.optimizers.adamw import Beta, correction
from paribus.study.choices import Options

OpenBeta = Annotated[float, Field(gt=0, lt=1)]


class ScheduleFreeOptions(Options):
    """Options of schedule-free AdamW.

    Attributes:
        betas: Interpolation factor between z and x, and decay rate of the second moment.
        eps: Term added to the denominator.
        rate_power: The weight of a step in the mean x is the largest learning rate so far, raised
            to this power.
    """

    betas: Annotated[tuple[OpenBeta, Beta], Field(strict=False)] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    rate_power: Annotated[float, Field(ge=0)] = 2.0


def mean_of_steps(weights: Tensor, slots: Slots, options: Any) -> Tensor:
    """Return the weighted mean x, computed from the weights y and the slot `lead` = z - y."""
    return weights + (1 - 1 / options.betas[0]) * slots["lead"]


@optimizer(
    "schedule_free",
    slots={
        "exp_avg_sq": like_parameter,
        "lead": like_parameter,  # z - y: zero before the first step
        "largest_rate": lambda shape, options: (1,),
        "weight_sum": lambda shape, options: (1,),
    },
    options=ScheduleFreeOptions,
    decay="own",
    corrections=lambda options, t: {"exp_avg_sq": 1 - options.betas[1] ** (t + 1)},
    evaluated=mean_of_steps,
)
def schedule_free(update: Update) -> None:
    """Perform one step of schedule-free AdamW.

    Sets z -= rate g / (sqrt(v / c2) + eps), with second moment v and bias correction c2, and then
    updates the mean x and the weights y.
    """
    options, rates, slots = update.options, update.rates, update.slots
    beta1, beta2 = options.betas
    square = slots["exp_avg_sq"]
    square.mul_(beta2).addcmul_(update.gradients, update.gradients, value=1 - beta2)
    step = update.gradients / (square / correction(beta2, update.t)).sqrt_().add_(options.eps)
    if isinstance(update.decay, Tensor):
        step.addcmul_(update.weights, update.decay)
    largest = slots["largest_rate"].copy_(torch.maximum(slots["largest_rate"], rates))
    weight = largest**options.rate_power * (rates > 0)
    total = slots["weight_sum"].add_(weight)
    share = (weight / total.clamp(min=torch.finfo(torch.float32).tiny))[:, :1]
    update.weights.addcmul_(slots["lead"], share)
    update.weights.addcmul_(step, rates * (beta1 * (1 - share) - 1))
    slots["lead"].sub_(step.mul_(rates * beta1)).mul_(1 - share)
