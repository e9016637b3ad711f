"""What a step is asked for, and what it leaves: both sides of a step that a GPU may replay.

Axes: R replicas, B batch, T time, C measured columns.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from paribus.model import Rows


class Kind(NamedTuple):
    """Static variant of a step: which outputs and copies it keeps.

    Attributes:
        tapped: paths of the modules whose outputs are wanted.
        seen: whether a probe looks at it, and the weights before it have to be kept.
    """

    tapped: tuple[str, ...]
    seen: bool


class Done(NamedTuple):
    """What a step leaves on the device.

    Attributes:
        measured: [R, C] the trainer's own columns.
        was_alive: [R] who was finite before the step.
        windows: [R, B, T + 1] the tokens it read.
        outputs: of the tapped modules, [R, ...] each.
        before: the weights before the update; those after it where nobody looks.
        gradients: before clipping.
    """

    measured: Tensor
    was_alive: Tensor
    windows: Tensor
    outputs: dict[str, Tensor]
    before: Rows
    gradients: Rows
