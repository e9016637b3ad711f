"""In which shapes an evaluation reads texts: a look ahead may open for some of them alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

Shape = tuple[int, int]  # rows and tokens


@contextmanager
def shapes_read(model: nn.Module) -> Iterator[set[Shape]]:
    """The shapes of the tokens that `model` is given inside; what goes on from a cache is not
    among them."""
    found: set[Shape] = set()

    def note(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        if len(given) == 1:
            found.add((given[0].shape[0], given[0].shape[1]))

    handle = model.register_forward_pre_hook(note)
    try:
        yield found
    finally:
        handle.remove()
