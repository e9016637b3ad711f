"""Parameters of a stack as one tensor: a row per replica, a slice of it per name.

Axes: R replicas, N parameters of one replica.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor


class Rows(Mapping[str, Tensor]):
    """[R, N] seen as {parameter name: [R, *shape]}; views that are made when they are asked for."""

    def __init__(self, flat_RN: Tensor, shapes: Mapping[str, torch.Size]) -> None:
        self.flat = flat_RN
        self._shapes = shapes
        self._starts, start = {}, 0
        for name, shape in shapes.items():
            self._starts[name] = start
            start += shape.numel()

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Rows:
        """A copy of {name: [R, *shape]}."""
        flat = torch.cat([tensor.flatten(1) for tensor in tensors.values()], dim=1)
        return cls(flat, {name: tensor.shape[1:] for name, tensor in tensors.items()})

    def __getitem__(self, name: str) -> Tensor:
        start, shape = self._starts[name], self._shapes[name]
        return self.flat[:, start : start + shape.numel()].view(-1, *shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    @property
    def first(self) -> dict[str, Tensor]:
        """{parameter name: [*shape]} of the first replica; views as well."""
        return {name: rows[0] for name, rows in self.items()}

    def pieces(self, names: Iterable[str]) -> list[Tensor]:
        """[R, n] each: the numbers of `names` in as few views as they lie together in."""
        spans: list[tuple[int, int]] = []
        for name in names:
            start = self._starts[name]
            end = start + self._shapes[name].numel()
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return [self.flat[:, start:end] for start, end in spans]


def role(name: str) -> str:
    """A parameter's name without the number of its block: what it is, whatever its depth."""
    return re.sub(r"\.\d+\.", ".", name)
