"""What can be seen of a training step, without the model or the engine knowing who looks.

Axes: R replicas of the stack, B batch, T time, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn


@dataclass(frozen=True)
class StepView:
    """One training step of a stack, before its update.

    Attributes:
        outputs: what the named modules gave in the forward pass, detached: {module path: [R, ...]}.
        tokens: [R, B, T] the inputs of the step.
    """

    outputs: dict[str, Tensor]
    tokens: Tensor


class Probe(Protocol):
    """Something measured at every step, one number per replica, that disturbs nothing."""

    @property
    def name(self) -> str:
        """The column in the record of steps."""
        ...

    @property
    def unit(self) -> str: ...

    @property
    def modules(self) -> tuple[str, ...]:
        """Paths of the modules whose outputs it needs, such as "embedding" or "blocks.0"."""
        ...

    @property
    def measure(self) -> Callable[[StepView], Tensor]:
        """From a step to [R] float32, on the step's device."""
        ...


@contextmanager
def capture(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collect the detached outputs of the modules at `paths` during forward passes within."""
    outputs: dict[str, Tensor] = {}

    def keep(path: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            outputs[path] = output.detach()

        return hook

    handles = [model.get_submodule(path).register_forward_hook(keep(path)) for path in paths]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
