"""Parameters of a stack as one tensor: a row per replica, a slice of it per name.

Axes: R replicas, N parameters of one replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


class Rows(Mapping[str, Tensor]):
    """[R, N] seen as {parameter name: [R, *shape]}; views that are made when they are asked for."""

    def __init__(self, flat_RN: Tensor, shapes: Mapping[str, torch.Size]) -> None:
        self._flat = flat_RN
        self._shapes = shapes
        self._starts, start = {}, 0
        for name, shape in shapes.items():
            self._starts[name] = start
            start += shape.numel()

    def __getitem__(self, name: str) -> Tensor:
        start, shape = self._starts[name], self._shapes[name]
        return self._flat[:, start : start + shape.numel()].view(-1, *shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)
