"""Lion (Chen et al. 2023, Symbolic discovery of optimization algorithms).

Every step changes each element by the learning rate, in the direction given by the sign of an
interpolated momentum. The authors recommend a learning rate 3 to 10 times smaller than AdamW's, and
a weight decay larger by the same factor.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paribus.engine.training.optimizers import Update, optimizer
from paribus.engine.training.optimizers.adamw import Beta
from paribus.study.choices import Options


class LionOptions(Options):
    """Options of Lion.

    Attributes:
        betas: Interpolation factors for the step and for the momentum.
    """

    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.99)


@optimizer("lion", slots=("exp_avg",), options=LionOptions)
def lion(update: Update) -> None:
    """Perform one Lion step.

    Sets weights -= rate sign(beta1 m + (1 - beta1) g), then m = beta2 m + (1 - beta2) g, with
    momentum m and gradient g.
    """
    beta1, beta2 = update.options.betas
    mean = update.slots["exp_avg"]
    direction = mean.lerp(update.gradients, 1 - beta1).sign_()
    update.weights.sub_(direction.mul_(update.rates))
    mean.lerp_(update.gradients, 1 - beta2)
