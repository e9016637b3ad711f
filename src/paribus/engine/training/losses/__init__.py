"""Training losses, one per file, declared with `@loss`.

A loss maps logits to one value per target, in nats; training minimizes the mean. The default is in
`cross_entropy.py`. A new file in this folder is discovered automatically; a study sets a custom
loss with `training.loss.name = "ideas.py:my_loss"`. The plain cross-entropy is always recorded, and
is used for divergence detection and all evaluations.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from paribus.engine.setting import setting
from paribus.errors import ParibusError
from paribus.study.choices import Decorated, Options, find_declared, read_options

__all__ = ["Loss", "TrainingLoss", "find_loss", "loss"]

PACKAGE = "paribus.engine.training.losses"
KEY = "training.loss"
DEFAULT = "cross_entropy"


class Loss(Decorated):
    """Decorator that declares a function as a training loss, `@loss("name")`.

    The function maps (logits [R, B, T, V] float32, targets [R, B, T], options) to a loss [R, B, T]
    in nats for each target. It must not mix replicas.
    """


loss = Loss


@dataclass(frozen=True)
class TrainingLoss:
    """Training loss of a study, with its options."""

    declared: Loss
    options: Options | setting.Loss  # the latter for the default loss

    @property
    def is_plain(self) -> bool:
        """Whether this is the plain cross-entropy, which evaluations use."""
        spec = self.options
        return isinstance(spec, setting.Loss) and not (spec.label_smoothing or spec.z_loss)

    def __call__(self, logits_RBTV: Tensor, targets_RBT: Tensor) -> Tensor:
        """Return the loss of every target in nats, [R, B, T].

        Raises ParibusError if a custom loss returns another shape.
        """
        values = self.declared.function(logits_RBTV, targets_RBT, self.options)
        if values.shape != targets_RBT.shape:
            raise ParibusError(
                f"loss '{self.declared.name}' returned shape {tuple(values.shape)}; return one "
                f"value per target, of shape {tuple(targets_RBT.shape)}",
                code="own_code",
            )
        return values


def find_loss(spec: setting.Loss, folder: Path | None) -> TrainingLoss:
    """Return the training loss specified by the study, with its options.

    Raises ParibusError for an unknown loss or option.
    """
    declared = find_declared(spec.name, Loss, f"{KEY}.name", PACKAGE, folder or Path.cwd())
    options = read_options(declared.options, spec.options, f"{KEY}.options", spec.name)
    if spec.name == DEFAULT:
        return TrainingLoss(declared, spec)
    if spec.label_smoothing or spec.z_loss:
        raise ParibusError(
            f"{KEY}.label_smoothing and {KEY}.z_loss have no effect on the loss '{spec.name}'; "
            "remove them",
            code="conflict",
        )
    return TrainingLoss(declared, options)
