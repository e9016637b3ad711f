"""Optimizers, one per file, declared with `@optimizer`.

An optimizer is a function that updates parameters of all replicas in place, given an `Update`. A
new file in this folder is discovered automatically; a study sets a custom optimizer with
`training.optimizer.name = "ideas.py:my_optimizer"`. The trainer handles weight decay, clipping,
schedules, parameter groups, checkpoints and diverged replicas.

Axes: R replicas, N elements, K parameters with one shape.
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
    """Arguments of an optimizer step, which updates `weights` and `slots` in place.

    A step must not read values on the host (`.item()`, `if tensor`), because it is captured as a
    CUDA graph on a GPU.

    Attributes:
        weights: [R, N], or [R, K, *shape] if the optimizer sets `whole_parameters`. Weight decay
            has been applied, unless the optimizer sets `decay="own"`.
        gradients: Clipped gradients, in the shape of `weights`; zero for a diverged replica.
        slots: {name: tensor in the shape of `weights`}, zero before the first step. A slot with a
            custom shape is [R, K, *shape of the slot], or [R, N] without `whole_parameters`; it is
            missing for parameters without that slot.
        rates: Learning rates, [R, 1] or [R, 1, 1, ...]; zero for a diverged replica.
        t: 0-based step index, int64 [].
        options: Options of the optimizer.
        decay: Weight decay in the shape of `rates` if the optimizer sets `decay="own"` and weight
            decay applies, otherwise 0.
    """

    weights: Tensor
    gradients: Tensor
    slots: Mapping[str, Tensor]
    rates: Tensor
    t: Tensor
    options: Any
    decay: float | Tensor = 0.0


Shape = tuple[int, ...]
# (parameter shape, options) -> slot shape, or None for no slot
SlotShape = Callable[[Shape, Any], Shape | None]
Slots = Mapping[str, Tensor]


def like_parameter(shape: Shape, options: Any) -> Shape:
    """Return `shape` itself, for a slot with the shape of its parameter."""
    return shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Optimizer(Decorated):
    """Decorator that declares an update function as an optimizer, `@optimizer("name")`.

    Attributes:
        slots: Names of the state tensors, as in checkpoints; or a mapping {name: (parameter shape,
            options) -> slot shape} if their shapes differ from those of the parameters.
        decay: "decoupled" multiplies weights by 1 - rate x decay before the step (Loshchilov &
            Hutter 2019); "own" passes `Update.decay` to the step.
        whole_parameters: Whether the step receives K parameters of one shape as [R, K, *shape]
            instead of flattened, [R, N].
        takes: Function (shape, use) that returns whether the optimizer supports a parameter. AdamW
            trains the others. None means that all are supported.
        corrections: Function (options, t) that returns {slot: bias-correction divisor at step t},
            for probes.
        evaluated: Function (weights, slots, options) that returns the weights to evaluate, save and
            export. None means the trained weights.
        afterwards: Function (slots, options, t) that is called on the host after step t. It may
            read values and update slots.
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
                f"optimizer '{self.name}' has invalid slots = {self.slots!r}; use a tuple of names "
                "such as ('momentum_buffer',), or a mapping from names to functions, without the "
                f"reserved names {', '.join(RESERVED)}"
            )

    def slot_shape(self, slot: str, shape: Shape, options: Any) -> Shape | None:
        """Return the shape of a parameter's state tensor, or None if it has none.

        Args:
            slot: name of the slot.
            shape: shape of the parameter.
            options: options of the optimizer.
        """
        return self.slots[slot](shape, options) if isinstance(self.slots, Mapping) else shape


optimizer = Optimizer


def _is_slot(slot: object) -> bool:
    return isinstance(slot, str) and slot.isidentifier() and slot not in RESERVED


def find_optimizer(name: str, key: str, folder: Path | None) -> Optimizer:
    """Return an optimizer by name or import path, such as "muon" or "ideas.py:my_optimizer".

    Raises ParibusError if there is no such optimizer, naming the study's `key`.
    """
    return find_declared(name, Optimizer, key, PACKAGE, folder or Path.cwd())
