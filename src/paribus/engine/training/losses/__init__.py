"""Training losses, one file each behind one decorator: which they are, and how one is found.

A loss is a function from logits to one number for every target, in nats; their mean is learned
from. One that has an argument `shared` is given a `Seen` by that name: hidden states, and what
parts of the model gave besides logits. A new file in this folder is known by its name; a user's own
is named in the study (`training.loss.name = "ideas.py:my_loss"`). The plain cross-entropy is
recorded beside it, and is what divergence, events and every evaluation are judged on.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from paribus.engine.model.shared import Seen, takes_shared
from paribus.engine.setting import setting
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Options, find_declared, read_options, require_declaration

__all__ = ["Loss", "TrainingLoss", "find_loss", "loss"]

PACKAGE = "paribus.engine.training.losses"
WHERE = "training.loss.name"

# (logits [R, B, T, V] float32, targets [R, B, T], options) -> [R, B, T] nats
Measure = Callable[..., Tensor]


@dataclass(frozen=True)
class Loss:
    """A training loss.

    Attributes:
        measure: from logits and targets to a number for each target; rows of R do not meet.
        name: how studies call it.
        options: the class of its options.
        is_plain: of its options, whether it then is the cross-entropy.
        source: where it is from.
    """

    measure: Measure
    name: str
    options: type[Options]
    is_plain: Callable[[Any], bool]
    source: str


def loss(
    name: str,
    *,
    options: type[Options] = Options,
    is_plain: Callable[[Any], bool] = lambda options: False,
    source: str = "",
) -> Callable[[Measure], Loss]:
    """Make a function from logits and targets to losses a training loss."""
    require_declaration("loss", name, options)

    def declare(measure: Measure) -> Loss:
        return Loss(measure, name, options, is_plain, source)

    return declare


@dataclass(frozen=True)
class TrainingLoss:
    """A loss with its options: what a study is trained with."""

    declared: Loss
    options: Options

    @property
    def is_plain(self) -> bool:
        """True of the cross-entropy, which need not be measured beside it."""
        return self.declared.is_plain(self.options)

    @property
    def takes_shared(self) -> bool:
        """Whether it sees more than logits."""
        return takes_shared(self.declared.measure)

    def __call__(
        self, logits_RBTV: Tensor, targets_RBT: Tensor, shared: Seen | None = None
    ) -> Tensor:
        """Return [R, B, T]. Raises ParibusError if the loss fails or gives anything else; what a
        GPU's recording refuses goes on."""
        more = {"shared": shared} if self.takes_shared else {}
        advice = "it is called with logits [R, B, T, V], targets [R, B, T] and its options"
        if shared is not None and more:
            outputs, auxiliary = (
                ", ".join(map(repr, those)) or "none"
                for those in (shared.outputs, shared.auxiliary)
            )
            advice += (
                f", and shared, with hidden [R, B, T, D], these outputs: {outputs}; and these "
                f"auxiliary losses: {auxiliary}"
            )
        but = (RuntimeError,) if logits_RBTV.is_cuda else ()
        with blamed(f"loss '{self.declared.name}' failed", advice, but=but):
            values = self.declared.measure(logits_RBTV, targets_RBT, self.options, **more)
        if not isinstance(values, Tensor) or values.shape != targets_RBT.shape:
            found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ParibusError(
                f"loss '{self.declared.name}' gave {found}, and must give a tensor of shape "
                f"{tuple(targets_RBT.shape)}: a number for every target, [R, B, T]"
            )
        if not values.is_floating_point() or logits_RBTV.requires_grad > values.requires_grad:
            raise ParibusError(
                f"loss '{self.declared.name}' gave numbers ({values.dtype}) that no gradient leads "
                "from to the logits; compute them from the logits, without detach() or rounding"
            )
        return values


def find_loss(wanted: setting.Loss, folder: Path | None) -> TrainingLoss:
    """Return the loss of a study. Raises ParibusError for an unknown one, or options it lacks."""
    found = find_declared(wanted.name, Loss, WHERE, PACKAGE, folder or Path.cwd())
    shared = wanted.model_dump(exclude={"name", "options", "auxiliary"})
    unread = [
        key
        for key, value in shared.items()
        if key not in found.options.model_fields and value != setting.Loss.model_fields[key].default
    ]
    if unread:
        raise ParibusError(
            f"training.loss.{unread[0]} is not read by the loss '{wanted.name}'; leave it out"
        )
    given = {k: v for k, v in shared.items() if k in found.options.model_fields} | wanted.options
    return TrainingLoss(
        found, read_options(found.options, given, "training.loss.options", wanted.name)
    )
