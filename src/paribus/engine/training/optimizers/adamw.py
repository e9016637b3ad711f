"""AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019), as in torch.optim.AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

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


@optimizer(
    "adamw",
    slots=("exp_avg", "exp_avg_sq"),
    options=AdamWOptions,
    corrections=corrections,
)
def adamw(update: Update) -> None:
    """Perform one AdamW step; see `ops.functional.adamw_step`."""
    rows = (update.weights, update.gradients, update.slots["exp_avg"], update.slots["exp_avg_sq"])
    adamw_step(rows, update.rates, update.t, update.options.betas, update.options.eps)
