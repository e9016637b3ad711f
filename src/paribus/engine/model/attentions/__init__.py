"""Attentions, and the cache for reading a text piece by piece.

An attention maps [B, T, D] to [B, T, D] and never looks ahead. It is built as `Attention(model,
turn)`, where `turn` are the study's positions if their place is the attention, else None
(`positions`). A new one is a file here. A custom module at `model.modules.attention` is built as
`Attention(model)` and gets its positions by `paribus.extend.study_positions(model, "attention")`.

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

    Pass it to `GPT.forward` with each piece of the text.
    """

    def __init__(self, n_layer: int) -> None:
        self.length = 0
        self._layers: list[tuple[Tensor, ...]] = [()] * n_layer

    def append(self, layer: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Append tensors [B, H, T, K] and return everything that the layer appended, [B, H, S, K].

        These are keys and values, or what an attention derives both from; H and K may differ.
        """
        if before := self._layers[layer]:
            new = tuple(torch.cat(pair, dim=2) for pair in zip(before, new, strict=True))
        self._layers[layer] = new
        return new

    def rows(self, index: Tensor) -> KeyValueCache:
        """Return a copy with these rows of the batch."""
        copy = KeyValueCache(len(self._layers))
        copy.length = self.length
        copy._layers = [tuple(x[index] for x in layer) for layer in self._layers]
        return copy


def visible(start: int, T: int, S: int, window: int | None, device: torch.device) -> Tensor:
    """Return a mask [T, S] of the positions that T queries see, the first of them at `start`.

    A query sees no later position, and at most `window` positions including itself.
    """
    queries_T1 = torch.arange(start, start + T, device=device)[:, None]
    distance_TS = queries_T1 - torch.arange(S, device=device)
    seen_TS = distance_TS >= 0
    return seen_TS if window is None else seen_TS & (distance_TS < window)
