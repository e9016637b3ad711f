"""Optimizers: one file each, declared with `@optimizer`.

An optimizer is a function that makes one step in place, from an `Update`, for the parameters of all
replicas at once. A new file in this folder is found by its name; a study names a custom optimizer
as `training.optimizer.name = "ideas.py:my_optimizer"`. The trainer handles weight decay, clipping,
schedules, parameter groups, checkpoints and diverged replicas.

Axes: R replicas, N numbers, K parameters of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from paribus.engine.model import ParameterUse
from paribus.engine.training.state import RESERVED
from paribus.study.choices import Decorated, find_declared

PACKAGE = "paribus.engine.training.optimizers"


@dataclass(frozen=True, slots=True)
class Update:
    """One step for some parameters of all replicas; `weights` and `slots` are written in place.

    Do not read values on the host (`.item()`, `if tensor`): on a GPU, steps are recorded.

    Attributes:
        weights: [R, N]; or [R, K, *shape] for an optimizer of whole parameters.
            Already decayed, unless `decay` is "own".
        gradients: Same shape, clipped; zero for a replica that has diverged.
        slots: {name: same shape}, zero before the first step. A slot with a shape of its own is
            [R, K, *its shape], or [R, N] without `whole_parameters`; it is absent for parameters
            that have none.
        rates: [R, 1] or [R, 1, 1, ...] learning rates; zero for a replica that has diverged.
        t: The step from 0, int64 [].
        options: Options of the optimizer.
        decay: Weight decay in the shape of `rates` if `decay` is "own"; else 0, as for parameters
            that do not decay.
    """

    weights: Tensor
    gradients: Tensor
    slots: Mapping[str, Tensor]
    rates: Tensor
    t: Tensor
    options: Any
    decay: float | Tensor = 0.0


Shape = tuple[int, ...]
# (shape of a parameter, options) -> shape of its slot, or None for no slot
SlotShape = Callable[[Shape, Any], Shape | None]
Slots = Mapping[str, Tensor]


def like_parameter(shape: Shape, options: Any) -> Shape:
    """Keep one number per element of a parameter."""
    return shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Optimizer(Decorated):
    """Declares a function that makes one step in place as an optimizer: `@optimizer("name")`.

    Attributes:
        slots: Names of its state tensors, also in checkpoints; or {name: (shape, options) -> its
            shape} for slots unlike their parameter.
        decay: "decoupled" multiplies weights by 1 - rate x decay before the step (Loshchilov &
            Hutter 2019); "own" passes `Update.decay` to the step.
        whole_parameters: Receive parameters as [R, K, *shape], K of one shape, instead of rows.
        takes: (shape, use) -> whether it trains a parameter, for one that leaves some to AdamW.
        corrections: (options, t) -> {slot: its divisor at step t}, for probes.
        evaluated: (weights, slots, options) -> the weights to evaluate, keep and export, if they
            are not the trained ones.
        afterwards: (slots, options, t) is called on the host after step t. It may read values and
            write to slots.
    """

    slots: tuple[str, ...] | Mapping[str, SlotShape] = ()
    decay: Literal["decoupled", "own"] = "decoupled"
    whole_parameters: bool = False
    takes: Callable[[Shape, ParameterUse], bool] | None = None
    corrections: Callable[[Any, int], Mapping[str, float]] | None = None
    evaluated: Callable[[Tensor, Slots, Any], Tensor] | None = None
    afterwards: Callable[[Slots, Any, int], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.slots, tuple | Mapping) or not all(map(_is_slot, self.slots)):
            raise ValueError(
                f"optimizer '{self.name}': slots = {self.slots!r} must be a tuple of names such as "
                f"('momentum_buffer',), or a mapping to shapes; {', '.join(RESERVED)} are reserved"
            )

    def slot_shape(self, slot: str, shape: Shape, options: Any) -> Shape | None:
        """Return the shape of a parameter's slot; None if it has none."""
        return self.slots[slot](shape, options) if isinstance(self.slots, Mapping) else shape


optimizer = Optimizer


def _is_slot(slot: object) -> bool:
    return isinstance(slot, str) and slot.isidentifier() and slot not in RESERVED


def find_optimizer(name: str, key: str, folder: Path | None) -> Optimizer:
    """Return the optimizer that a study names under `key`. Raises ParibusError."""
    return find_declared(name, Optimizer, key, PACKAGE, folder or Path.cwd())
