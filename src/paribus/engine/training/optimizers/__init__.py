"""Optimizers, one file each behind one decorator.

An optimizer is a function that makes one step in place, from an `Update`, for the parameters of all
replicas at once. A new file in this folder is known by its name; a user's own is named in the study
(`training.optimizer.name = "ideas.py:my_optimizer"`). Weight decay, clipping, schedules, parameter
groups, checkpoints and replicas that have diverged are not its business.

Axes: R replicas, N numbers, K matrices of one shape [n, m].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from paribus.engine.model import ParameterUse
from paribus.engine.training.state import WEIGHTS
from paribus.study.choices import Options, find_declared, require_declaration

__all__ = ["Optimizer", "Options", "Update", "find_optimizer", "optimizer"]

PACKAGE = "paribus.engine.training.optimizers"


@dataclass(frozen=True, slots=True)
class Update:
    """One step for some parameters of all replicas; `weights` and `slots` are written in place.

    No value may be read on the host (`.item()`, `if tensor`): on a GPU steps are recorded.

    Attributes:
        weights: [R, N], or [R, K, n, m] for an optimizer of matrices; decayed already.
        gradients: the same shape, clipped; zero in a replica that does not move: it has diverged,
            or skips a step that overflowed in float16.
        slots: {name: the same shape}, zero before the first step.
        rates: [R, 1] or [R, 1, 1, 1] learning rates; zero in a replica that does not move.
        t: int64, the step, from 0: []; in float16, where steps may be skipped, how many each
            replica has made, of the shape of `rates`.
        options: as declared.
        momentum: that of the options, or of the shape of `rates` where it is scheduled; 0 of an
            optimizer that declares none.
    """

    weights: Tensor
    gradients: Tensor
    slots: Mapping[str, Tensor]
    rates: Tensor
    t: Tensor
    options: Any
    momentum: float | Tensor = 0.0


Step = Callable[[Update], None]
Takes = Callable[[tuple[int, ...], ParameterUse], bool]


def takes_all(shape: tuple[int, ...], use: ParameterUse) -> bool:
    """Take every parameter."""
    return True


def no_corrections(options: Any, t: int) -> Mapping[str, float]:
    """Divide no slot by anything."""
    return {}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer.

    Attributes:
        step: makes one, in place.
        name: how studies call it.
        slots: what it keeps for each number of a parameter: names under which checkpoints hold it.
        options: the class of its options.
        decay: `decoupled` shrinks weights by rate x decay before the step (Loshchilov & Hutter
            2019); `coupled` adds decay x weights to the gradient, as L2 regularisation does.
        matrices: whether it is given matrices [R, K, n, m] instead of rows of numbers.
        takes: (shape, use) -> whether a parameter is for it.
        rest: the optimizer of parameters that are not.
        momentum: the option that `training.schedules.momentum` multiplies; empty for none.
        corrections: (options, t) -> {slot: what step t divides it by}, for those who look at it.
        source: where it is from.
    """

    step: Step
    name: str
    slots: tuple[str, ...]
    options: type[Options]
    decay: Literal["decoupled", "coupled"]
    matrices: bool
    takes: Takes
    rest: str
    momentum: str
    corrections: Callable[[Any, int], Mapping[str, float]]
    source: str


def optimizer(
    name: str,
    *,
    slots: tuple[str, ...] = (),
    options: type[Options] = Options,
    decay: Literal["decoupled", "coupled"] = "decoupled",
    matrices: bool = False,
    takes: Takes = takes_all,
    rest: str = "adamw",
    momentum: str = "",
    corrections: Callable[[Any, int], Mapping[str, float]] = no_corrections,
    source: str = "",
) -> Callable[[Step], Optimizer]:
    """Make a function that writes one step in place an optimizer; see `Optimizer` for the rest.

    Raises ValueError for a declaration that cannot be one.
    """
    require_declaration("optimizer", name, options)
    if not isinstance(slots, tuple) or not all(_is_slot(slot) for slot in slots):
        raise ValueError(
            f"optimizer '{name}': slots = {slots!r} must be a tuple of names, such as "
            f"('momentum_buffer',); '{WEIGHTS}' is what the weights are called"
        )
    if matrices and takes is takes_all:
        raise ValueError(
            f"optimizer '{name}' is given matrices, so it has to say which parameters it takes, "
            "such as takes=lambda shape, use: len(shape) == 2"
        )

    if momentum and momentum not in options.model_fields:
        raise ValueError(f"optimizer '{name}': momentum = '{momentum}' is none of its options")

    def declare(step: Step) -> Optimizer:
        return Optimizer(
            *(step, name, slots, options, decay, matrices, takes, rest),
            *(momentum, corrections, source),
        )

    return declare


def _is_slot(slot: object) -> bool:
    return isinstance(slot, str) and slot.isidentifier() and slot != WEIGHTS


def find_optimizer(name: str, where: str, folder: Path | None) -> Optimizer:
    """Return the optimizer that `name` means under the key `where`. Raises ParibusError."""
    return find_declared(name, Optimizer, where, PACKAGE, folder or Path.cwd())
