"""Flat storage for the parameters of all replicas, with one row per replica.

Axes: R replicas, N parameters in one replica.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor


class Rows(Mapping[str, Tensor]):
    """Mapping from parameter names to views [R, *shape] of a flat tensor [R, N]."""

    def __init__(self, flat_RN: Tensor, shapes: Mapping[str, torch.Size]) -> None:
        self.flat = flat_RN
        self._shapes = shapes
        self._starts, start = {}, 0
        for name, shape in shapes.items():
            self._starts[name] = start
            start += shape.numel()

    def __getitem__(self, name: str) -> Tensor:
        start, shape = self._starts[name], self._shapes[name]
        return self.flat[:, start : start + shape.numel()].view(-1, *shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    @classmethod
    def zeros(cls, shapes: Mapping[str, torch.Size], like_RN: Tensor) -> Rows:
        """Create zeros with the number of replicas, dtype and device of `like_RN`."""
        size = sum(shape.numel() for shape in shapes.values())
        return cls(like_RN.new_zeros(len(like_RN), size), shapes)

    def like(self, flat_RN: Tensor) -> Rows:
        """Return a view of `flat_RN` with the same names and shapes."""
        return Rows(flat_RN, self._shapes)

    def clone(self) -> Rows:
        """Return a deep copy."""
        return self.like(self.flat.clone())

    def place(self, names: Sequence[str]) -> slice:
        """Return the slice of axis N that contains `names`, which must be adjacent and in order."""
        first, last = names[0], names[-1]
        return slice(self._starts[first], self._starts[last] + self._shapes[last].numel())

    def pieces(self, names: Iterable[str]) -> list[Tensor]:
        """Return the parameters called `names` in as few flat views [R, n] as possible."""
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
    """Return a parameter's name without its block index."""
    return re.sub(r"\.\d+\.", ".", name)
