"""Attentions, and the cache for reading a text piece by piece.

An attention maps [B, T, D] to [B, T, D] and never looks ahead. It is built as `Attention(model,
turn)`, where `turn` are the study's positions if their place is the attention, else None
(`positions`). A new one is a file here. A custom module at `model.modules.attention` is built as
`Attention(model)` and gets its positions from `paribus.extend.study_positions`.

An attention that can read a text piece by piece declares `cached=True` in `@part`, a custom class
`cached = True`. It may be called with a `KeyValueCache` as second argument: its input starts at
position `cache.length`, and it appends whatever later tokens need.

Axes: B batch, H heads, S positions read so far, K channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Memory of every block's attention while a text is read piece by piece.

    Pass it to `GPT.forward` with each piece of the text. `room` is its capacity in positions.
    """

    def __init__(self, n_layer: int, room: int) -> None:
        self.length = 0
        self._room = room
        self._layers: list[tuple[Tensor, ...]] = [()] * n_layer

    def append(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Append tensors [B, H, T, K] and return everything that the layer appended, [B, H, S, K].

        These are keys and values, or what an attention derives both from; H and K may differ.
        """
        if not self._layers[layer]:
            shapes = [(*x.shape[:2], self._room, *x.shape[3:]) for x in new]
            self._layers[layer] = tuple(
                x.new_empty(shape) for x, shape in zip(new, shapes, strict=True)
            )
        end = self.length + new[0].shape[2]
        stores = self._layers[layer]
        for store, x in zip(stores, new, strict=True):
            store[:, :, self.length : end] = x
        return tuple(store[:, :, :end] for store in stores)

    def rows(self, index: Tensor, room: int) -> KeyValueCache:
        """Return a copy with these rows of the batch, and room for this many more positions."""
        copy = KeyValueCache(len(self._layers), self.length + room)
        for layer, stores in enumerate(self._layers):
            if stores:
                copy.append(layer, *(store[index, :, : self.length] for store in stores))
        copy.advance(self.length)
        return copy

    def advance(self, T: int) -> None:
        """Count T positions that all layers have appended."""
        self.length += T


def visible(start: int, T: int, S: int, window: int | None, device: torch.device) -> Tensor:
    """Return a mask [T, S] of the positions that T queries see, the first of them at `start`.

    A query sees no later position, and at most `window` positions including itself.
    """
    queries_T1 = torch.arange(start, start + T, device=device)[:, None]
    distance_TS = queries_T1 - torch.arange(S, device=device)
    seen_TS = distance_TS >= 0
    return seen_TS if window is None else seen_TS & (distance_TS < window)
