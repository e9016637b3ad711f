"""Attentions, and the cache that all of them read with.

Each maps [B, T, D] to [B, T, D] and never looks ahead. It is built as `Attention(model, turn)`,
where `turn` are the study's positions if they stand in the attention, else None (`positions`). A
new one is a file here, or a module of the user's own at `attention`, which is built as
`Attention(model)` and builds its positions itself (`paribus.extend.study_positions`).

One that can read a text piece by piece says `cached=True` in `part`, or in a class of the user's
own `cached = True`. It is then called with a `KeyValueCache` as second argument: what it is given
begins at position `cache.length`, and it appends what later tokens need.

Axes: B batch, H heads, S positions read so far, K channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Memory of every block's attention while a text is read piece by piece.

    Pass the same one to `GPT.forward` with each next piece of the text. `room` is the most
    positions that it holds.
    """

    def __init__(self, n_layer: int, room: int) -> None:
        self.length = 0
        self._room = room
        self._layers: list[tuple[Tensor, ...]] = [()] * n_layer

    def append(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Return all that a layer has appended, [B, H, S, K] each, `new` [B, H, T, K] last.

        Keys and values, or whatever an attention makes both of; each has an H and K of its own.
        """
        if not self._layers[layer]:
            shapes = [(*x.shape[:2], self._room, *x.shape[3:]) for x in new]
            self._layers[layer] = tuple(
                x.new_empty(shape) for x, shape in zip(new, shapes, strict=True)
            )
        end = self.length + new[0].shape[2]
        held = self._layers[layer]
        for store, x in zip(held, new, strict=True):
            store[:, :, self.length : end] = x
        return tuple(store[:, :, :end] for store in held)

    def rows(self, index: Tensor, room: int) -> KeyValueCache:
        """Return a copy with these rows of the batch, in their order, and room for more tokens."""
        copy = KeyValueCache(len(self._layers), self.length + room)
        for layer, held in enumerate(self._layers):
            if held:
                copy.append(layer, *(store[index, :, : self.length] for store in held))
        copy.advance(self.length)
        return copy

    def advance(self, T: int) -> None:
        """Count T positions, which all layers have appended."""
        self.length += T


def visible(start: int, T: int, S: int, window: int | None, device: torch.device) -> Tensor:
    """Return [T, S], which of S positions each of T sees, the first of them at `start`.

    None after itself, and with a window none further back than that.
    """
    places_T1 = torch.arange(start, start + T, device=device)[:, None]
    back_TS = places_T1 - torch.arange(S, device=device)
    return back_TS >= 0 if window is None else (back_TS >= 0) & (back_TS < window)
