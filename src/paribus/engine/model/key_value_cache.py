"""Keys and values of tokens already read, so that each new token costs one position.

Axes: B batch, H heads, S positions read so far, K channels of a head.
"""

from __future__ import annotations

from torch import Tensor


class KeyValueCache:
    """What the attention of every block remembers while a text is read piece by piece.

    Pass the same one to `GPT.forward` with each next piece of the text. `room` is the most
    positions that it holds.
    """

    def __init__(self, n_layer: int, room: int) -> None:
        self.length = 0
        self._room = room
        self._layers: list[tuple[Tensor, Tensor] | None] = [None] * n_layer

    def append(self, layer: int, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """([B, H, S, K], [B, H, S, K]) all keys and values of a layer, the new ones last."""
        B, H, T, K = k_BHTK.shape
        held = self._layers[layer]
        if held is None:
            shape = (B, H, self._room, K)
            held = self._layers[layer] = (k_BHTK.new_empty(shape), v_BHTK.new_empty(shape))
        end = self.length + T
        for store, new in zip(held, (k_BHTK, v_BHTK), strict=True):
            store[:, :, self.length : end] = new
        return held[0][:, :, :end], held[1][:, :, :end]

    def rows(self, index: Tensor, room: int) -> KeyValueCache:
        """A copy with these rows of the batch, in this order, and room for more positions."""
        copy = KeyValueCache(len(self._layers), self.length + room)
        for layer, held in enumerate(self._layers):
            if held is not None:
                copy.append(layer, *(store[index, :, : self.length] for store in held))
        copy.advance(self.length)
        return copy

    def advance(self, T: int) -> None:
        """All layers have appended T positions."""
        self.length += T
