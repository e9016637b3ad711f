"""Training losses: one file each, declared with `@loss`.

A loss maps logits to one number per target, in nats; training minimizes their mean. A loss with an
argument `shared` also receives a `Seen`: hidden states, and outputs that parts of the model left.
The default is in `cross_entropy.py`. A new file in this folder is found by its name; a study names
a custom loss as `training.loss.name = "ideas.py:my_loss"`. The plain cross-entropy is always
recorded beside the loss, and decides divergence, events and every evaluation.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from paribus.engine.model.shared import Seen, takes_shared
from paribus.engine.setting import setting
from paribus.errors import ParibusError
from paribus.study.choices import Decorated, Options, find_declared, read_options

__all__ = ["Loss", "TrainingLoss", "find_loss", "loss"]

PACKAGE = "paribus.engine.training.losses"
KEY = "training.loss"


class Loss(Decorated):
    """Declares a function as a training loss: `@loss("name")`.

    (logits [R, B, T, V] float32, targets [R, B, T], options) -> [R, B, T] nats, one number per
    target; replicas must not mix.
    """


loss = Loss


@dataclass(frozen=True)
class TrainingLoss:
    """The loss of a study, with its options."""

    declared: Loss
    options: Options

    @property
    def is_plain(self) -> bool:
        """True for the plain cross-entropy, which evaluations use."""
        return self.declared.name == "cross_entropy" and self.options == self.declared.options()

    @property
    def takes_shared(self) -> bool:
        """True if the loss has an argument `shared`."""
        return takes_shared(self.declared.function)

    def __call__(
        self, logits_RBTV: Tensor, targets_RBT: Tensor, shared: Seen | None = None
    ) -> Tensor:
        """Return the loss of every target, [R, B, T]. Raises ParibusError for another shape."""
        extra = {"shared": shared} if self.takes_shared else {}
        values = self.declared.function(logits_RBTV, targets_RBT, self.options, **extra)
        if values.shape != targets_RBT.shape:
            raise ParibusError(
                f"loss '{self.declared.name}' returned {tuple(values.shape)}; it must return one "
                f"number per target, a tensor of shape {tuple(targets_RBT.shape)}",
                code="own_code",
            )
        return values


def find_loss(spec: setting.Loss, folder: Path | None) -> TrainingLoss:
    """Return the loss that a study names, with its options.

    Raises ParibusError for an unknown loss and for options that it does not have.
    """
    declared = find_declared(spec.name, Loss, f"{KEY}.name", PACKAGE, folder or Path.cwd())
    options = dict(spec.options)
    for key, value in spec.model_dump(exclude={"name", "options", "auxiliary"}).items():
        if key in declared.options.model_fields:
            options.setdefault(key, value)
        elif value != setting.Loss.model_fields[key].default:
            raise ParibusError(
                f"{KEY}.{key} has no effect on the loss '{spec.name}'; remove it", code="conflict"
            )
    return TrainingLoss(
        declared, read_options(declared.options, options, f"{KEY}.options", spec.name)
    )
