"""Cautious AdamW (Liang et al. 2024, Cautious optimizers).

An element moves only if its step and its gradient agree in sign. The step is divided by the share
of a parameter that moves, so that its length stays the same.
"""

from __future__ import annotations

from paribus.engine.ops.functional import adam_moments
from paribus.engine.training.optimizers import Update, optimizer
from paribus.engine.training.optimizers.adamw import AdamWOptions, corrections

LEAST_SHARE = 1e-3  # smallest divisor of a step


@optimizer(
    "cautious_adamw",
    slots=("exp_avg", "exp_avg_sq"),
    options=AdamWOptions,
    study_keys=("betas", "eps"),
    whole_parameters=True,
    corrections=corrections,
    source="Liang et al. 2024",
)
def cautious_adamw(update: Update) -> None:
    """Write weights -= rate (m / c1) / (sqrt(v / c2) + eps) k / mean(k), k being m g > 0."""
    options, gradients = update.options, update.gradients
    rows = (gradients, update.slots["exp_avg"], update.slots["exp_avg_sq"])
    step = adam_moments(rows, update.t, options.betas, options.eps)
    agrees = (update.slots["exp_avg"] * gradients > 0).to(step.dtype)
    share = agrees.flatten(2).mean(dim=2).clamp_(min=LEAST_SHARE)
    step.mul_(agrees).div_(share.view(*share.shape, *(1,) * (step.ndim - 2)))
    update.weights.sub_(step.mul_(update.rates))
