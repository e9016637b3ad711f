"""SGD with momentum (Sutskever et al. 2013), as torch.optim.SGD; weight decay is L2 (coupled)."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from paribus.engine.training.optimizers import Update, optimizer
from paribus.engine.training.optimizers.adamw import Beta
from paribus.study.choices import Options


class SGDOptions(Options):
    """Momentum, plain or Nesterov; 0 is SGD without momentum."""

    momentum: Beta = 0.9
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov = true needs a momentum above 0")
        return self


@optimizer(
    "sgd",
    slots=("momentum_buffer",),
    options=SGDOptions,
    decay="coupled",
    source="Sutskever et al. 2013",
)
def sgd(update: Update) -> None:
    """Write b = momentum b + g; weights -= rate b, or rate (g + momentum b) with Nesterov's."""
    momentum, gradients = update.momentum, update.gradients
    buffer = update.slots["momentum_buffer"].mul_(momentum).add_(gradients)
    step = gradients + momentum * buffer if update.options.nesterov else buffer
    update.weights.sub_(step * update.rates)
