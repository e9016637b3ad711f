"""What a trainer asks of the replicas that it trains; where and how their numbers lie is theirs.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from paribus.engine.model import GPT
from paribus.engine.rows import Rows
from paribus.engine.training.losses import TrainingLoss
from paribus.engine.training.prefetch import Inputs

OnPhase = Callable[[str], object]


class ForwardBackward(NamedTuple):
    """What a forward and a backward pass over a batch give.

    Attributes:
        losses: [R] mean cross-entropy in nats per token.
        objectives: [R] the mean of the training loss, which the gradient is of.
        gradients: {parameter name: [R, ...]} before clipping.
        outputs: of the tapped modules, [R, B, ...] each.
    """

    losses: Tensor
    objectives: Tensor
    gradients: Rows
    outputs: dict[str, Tensor]


class Replicas(Protocol):
    """R replicas of one model, which differ in seed and perhaps in learning rate, weight decay and
    initial weights, and share no arithmetic.

    Nothing here reads a tensor's values on the host, but for `arrays` and `load`.

    Attributes:
        model: one of them, for its structure; its weights mean nothing.
        dropouts: names of its dropout modules in use.
        initial_records: of each replica, its initial parameters as they are recorded.
        shapes: of `arrays`, by name.
        slots: {name of what the optimizer keeps: {parameter name: [R, ...]}}.
        optimizer_record: which optimizer has which parameters, with its options.
        loss: what they learn from.
    """

    model: GPT
    dropouts: tuple[str, ...]
    initial_records: list[dict[str, Any]]
    shapes: dict[str, tuple[int, ...]]
    slots: dict[str, Rows]
    optimizer_record: list[dict[str, Any]]
    loss: TrainingLoss

    @property
    def weights(self) -> Rows:
        """{parameter name: [R, ...]} as they are; they change with `update`."""
        ...

    def forward_backward(
        self,
        inputs: Inputs,
        tapped: Sequence[str],
        on_phase: OnPhase,
        scales_R: Tensor | None = None,
    ) -> ForwardBackward:
        """Loss and gradient of a batch; outputs of the modules at the `tapped` paths.

        The backward pass is of the objectives times `scales_R`, and gradients are divided by them.
        """
        ...

    def logits(
        self, dropout_keys: Tensor, tokens_RBT: Tensor, tapped: Sequence[str], *, mixed: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(logits [R, B, T, V], tapped outputs) as a training step computes them.

        mixed: False computes in float32 whatever the setting's precision.
        """
        ...

    def norms(self, gradients: Rows) -> Tensor:
        """[R] the L2 norm of all gradients of a replica."""
        ...

    def update(
        self, gradients: Rows, factors_R: Tensor, moves_R: Tensor, rates_R: Tensor, t: Tensor
    ) -> None:
        """One step of the optimizer, with gradients times `factors_R`, where a replica moves.

        t is the step, [], and who does not move has diverged: its weights stay. Or it is how many
        steps each has made, [R]: then one that does not move may go on, and its slots stay too.
        """
        ...

    def corrections(self, t: int) -> Mapping[str, Mapping[str, float]]:
        """{slot: {parameter name: what the optimizer divides it by at step t}}, where it does.

        As if no step before t had been skipped.
        """
        ...

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """A copy of all that a replica goes on from, by name: `weights/<parameter>`, and
        `<slot>/<parameter>` of its optimizer."""
        ...

    def load(self, replica: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Give a replica all or some of what `arrays` gave."""
        ...
