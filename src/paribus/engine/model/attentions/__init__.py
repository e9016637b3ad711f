"""Attention modules, and the key-value cache for incremental decoding.

An attention maps [B, T, D] to [B, T, D] and must be causal. It is built as `Attention(model,
turn)`, where `turn` is the study's position encoding if it rotates queries and keys, otherwise None
(see `positions`). Add an attention as a file in this folder. A custom module at
`model.modules.attention` is built as `Attention(model)`, and gets the position encoding from
`paribus.extend.study_positions(model, "attention")`.

An attention that supports the cache sets `cached=True` in `@part`, or `cached = True` in a custom
class. It may then be called with a `KeyValueCache` as second argument. Its input starts at position
`cache.length`, and it must append its keys and values to the cache.

Axes: B batch, H heads, T new positions, S positions so far, K channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Cached keys and values of all blocks, for incremental calls of `GPT.forward`.

    Attributes:
        length: Number of cached positions.
    """

    def __init__(self, n_layer: int) -> None:
        self.length = 0
        self._layers: list[tuple[Tensor, ...]] = [()] * n_layer

    def append(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Append tensors [B, H, T, K] to a block's cache and return all positions, [B, H, S, K].

        The tensors are keys and values, or whatever an attention computes them from; H and K may
        differ between them.

        Args:
            layer: 0-based index of the block.
        """
        if before := self._layers[layer]:
            new = tuple(torch.cat(pair, dim=2) for pair in zip(before, new, strict=True))
        self._layers[layer] = new
        return new

    def rows(self, index: Tensor) -> KeyValueCache:
        """Return a copy that contains the batch rows selected by `index`."""
        copy = KeyValueCache(len(self._layers))
        copy.length = self.length
        copy._layers = [tuple(x[index] for x in layer) for layer in self._layers]
        return copy


def visible(start: int, T: int, S: int, window: int | None, device: torch.device) -> Tensor:
    """Return a causal mask [T, S] that is True where a query may attend to a position.

    Args:
        start: position of the first query.
        T: number of queries.
        S: number of positions.
        window: number of positions that a query may attend to, including itself; None for all.
    """
    queries_T1 = torch.arange(start, start + T, device=device)[:, None]
    distance_TS = queries_T1 - torch.arange(S, device=device)
    seen_TS = distance_TS >= 0
    return seen_TS if window is None else seen_TS & (distance_TS < window)
