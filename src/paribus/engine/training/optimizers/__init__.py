"""Optimizers, one file each behind one decorator.

An optimizer is a function that makes one step in place, from an `Update`, for the parameters of all
replicas at once. A new file in this folder is known by its name; a user's own is named in the study
(`training.optimizer.name = "ideas.py:my_optimizer"`). Weight decay, clipping, schedules, parameter
groups, checkpoints and replicas that have diverged are not its business.

Axes: R replicas, N numbers, K parameters of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from paribus.engine.model import ParameterUse
from paribus.engine.training.state import TAKEN
from paribus.study.choices import Options, find_declared, require_declaration

__all__ = ["Optimizer", "Options", "Update", "find_optimizer", "like_parameter", "optimizer"]

PACKAGE = "paribus.engine.training.optimizers"

Decay = Literal["decoupled", "coupled", "own"]


@dataclass(frozen=True, slots=True)
class Update:
    """One step for some parameters of all replicas; `weights` and `slots` are written in place.

    No value may be read on the host (`.item()`, `if tensor`): on a GPU steps are recorded.

    Attributes:
        weights: [R, N]; or [R, K, *shape] for an optimizer of whole parameters or of matrices;
            decayed already, unless decay is its own.
        gradients: the same shape, clipped; zero in a replica that does not move: it has diverged,
            or skips a step that overflowed in float16.
        slots: {name: the same shape}, zero before the first step; [R, K, *its shape] or all in a
            row where it declares one of its own, and none where it declares that there is none.
        rates: [R, 1] or [R, 1, 1, ...] learning rates; zero in a replica that does not move.
        t: int64, the step, from 0: []; in float16, where steps may be skipped, how many each
            replica has made, of the shape of `rates`.
        options: as declared.
        momentum: that of the options, or of the shape of `rates` where it is scheduled; 0 of an
            optimizer that declares none.
        decay: weight decay of the shape of `rates`, where it is the optimizer's own business; else
            0, as of parameters that are not decayed.
    """

    weights: Tensor
    gradients: Tensor
    slots: Mapping[str, Tensor]
    rates: Tensor
    t: Tensor
    options: Any
    momentum: float | Tensor = 0.0
    decay: float | Tensor = 0.0


Shape = tuple[int, ...]
# (shape of a parameter, options) -> shape of what is kept for it, or None where nothing is
SlotShape = Callable[[Shape, Any], Shape | None]
Slots = Mapping[str, Tensor]
Step = Callable[[Update], None]
Takes = Callable[[Shape, ParameterUse], bool]
Evaluated = Callable[[Tensor, Slots, Any], Tensor]
Afterwards = Callable[[Slots, Any, int], None]


def takes_all(shape: Shape, use: ParameterUse) -> bool:
    """Take every parameter."""
    return True


def is_matrix(shape: Shape, use: ParameterUse) -> bool:
    """Take every matrix."""
    return len(shape) == 2


def like_parameter(shape: Shape, options: Any) -> Shape:
    """Keep a number for each of a parameter."""
    return shape


def once(shape: Shape, options: Any) -> Shape:
    """Keep one number for a parameter."""
    return (1,)


def no_corrections(options: Any, t: int) -> Mapping[str, float]:
    """Divide no slot by anything."""
    return {}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer.

    Attributes:
        step: makes one, in place.
        name: how studies call it.
        slots: what it keeps: names under which checkpoints hold it.
        slot_shapes: {slot: (shape, options) -> its shape} of those that are not a number for each
            of a parameter.
        options: the class of its options.
        decay: `decoupled` shrinks weights by rate x decay before the step (Loshchilov & Hutter
            2019); `coupled` adds decay x weights to the gradient, as L2 regularisation does; `own`
            leaves it to the step, as `Update.decay`.
        whole: whether it is given parameters whole, [R, K, *shape] those of one shape, instead of
            rows of numbers.
        matrices: the same, and only matrices [R, K, n, m].
        takes: (shape, use) -> whether a parameter is for it.
        rest: the optimizer of parameters that are not.
        momentum: the option that `training.schedules.momentum` multiplies; empty for none.
        corrections: (options, t) -> {slot: what step t divides it by}, for those who look at it.
        evaluated: (weights, slots, options) -> the weights that are evaluated, kept and exported,
            where they are not those that are trained.
        afterwards: (slots, options, t) is called after step t, to write to slots in place; on the
            host, where t is a number and values may be read.
        source: where it is from.
    """

    step: Step
    name: str
    slots: tuple[str, ...]
    slot_shapes: Mapping[str, SlotShape]
    options: type[Options]
    decay: Decay
    whole: bool
    matrices: bool
    takes: Takes
    rest: str
    momentum: str
    corrections: Callable[[Any, int], Mapping[str, float]]
    evaluated: Evaluated | None
    afterwards: Afterwards | None
    source: str

    def slot_shape(self, slot: str, shape: Shape, options: Any) -> Shape | None:
        """Return the shape of what is kept for a parameter; None where nothing is."""
        return self.slot_shapes.get(slot, like_parameter)(shape, options)


def optimizer(
    name: str,
    *,
    slots: tuple[str, ...] | Mapping[str, SlotShape] = (),
    options: type[Options] = Options,
    decay: Decay = "decoupled",
    whole: bool = False,
    matrices: bool = False,
    takes: Takes = takes_all,
    rest: str = "adamw",
    momentum: str = "",
    corrections: Callable[[Any, int], Mapping[str, float]] = no_corrections,
    evaluated: Evaluated | None = None,
    afterwards: Afterwards | None = None,
    source: str = "",
) -> Callable[[Step], Optimizer]:
    """Make a function that writes one step in place an optimizer; see `Optimizer` for the rest.

    slots: names, of a number for each of a parameter; or {name: (shape, options) -> its shape}.
    Raises ValueError for a declaration that cannot be one.
    """
    require_declaration("optimizer", name, options)
    if not isinstance(slots, tuple | Mapping) or not all(_is_slot(slot) for slot in slots):
        raise ValueError(
            f"optimizer '{name}': slots = {slots!r} must be a tuple of names, such as "
            f"('momentum_buffer',), or their shapes by name; {' and '.join(TAKEN)} are other things"
        )
    if matrices and takes is takes_all:
        raise ValueError(
            f"optimizer '{name}' is given matrices, so it has to say which parameters it takes, "
            "such as takes=lambda shape, use: len(shape) == 2"
        )

    if momentum and momentum not in options.model_fields:
        raise ValueError(f"optimizer '{name}': momentum = '{momentum}' is none of its options")

    own = slots if isinstance(slots, Mapping) else {}
    shapes = {slot: of for slot, of in own.items() if of is not like_parameter}

    def declare(step: Step) -> Optimizer:
        return Optimizer(
            *(step, name, tuple(slots), shapes, options, decay, whole or matrices, matrices),
            *(takes, rest, momentum, corrections, evaluated, afterwards, source),
        )

    return declare


def _is_slot(slot: object) -> bool:
    return isinstance(slot, str) and slot.isidentifier() and slot not in TAKEN


def find_optimizer(name: str, where: str, folder: Path | None) -> Optimizer:
    """Return the optimizer that `name` means under the key `where`. Raises ParibusError."""
    return find_declared(name, Optimizer, where, PACKAGE, folder or Path.cwd())
