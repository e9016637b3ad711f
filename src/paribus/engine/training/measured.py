"""What was measured at every step: kept on the device, and fetched from there in blocks.

Axes: R replicas, C columns, K steps of a block, t steps so far.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BLOCK = 16


class Measured:
    """Rows [R, C] float32, one per step."""

    def __init__(self, n_columns: int, n_replicas: int) -> None:
        self._shape = (n_replicas, n_columns)
        self._here: list[np.ndarray] = []  # [K, R, C] each
        # On their way from a GPU: the memory that they arrive in, and when they have.
        self._coming: list[tuple[Tensor, torch.cuda.Event]] = []
        self._recent: list[Tensor] = []

    def append(self, row_RC: Tensor) -> None:
        """Keep the row [R, C] of the step just made; every BLOCK rows leave the device together."""
        self._recent.append(row_RC)
        if len(self._recent) == BLOCK:
            block_KRC, self._recent = torch.stack(self._recent), []
            if block_KRC.device.type != "cuda":
                self._here.append(block_KRC.cpu().numpy())
                return
            host = torch.empty(block_KRC.shape, dtype=block_KRC.dtype, pin_memory=True)
            host.copy_(block_KRC, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
            self._coming.append((host, arrived))

    def replace(self, rows_tRC: np.ndarray) -> None:
        """Forget everything but these."""
        self._here, self._coming, self._recent = [rows_tRC] if len(rows_tRC) else [], [], []

    def all(self) -> np.ndarray:
        """[t, R, C]; waits for the device."""
        while self._coming:
            self._receive()
        if self._recent:
            self._here.append(torch.stack(self._recent).cpu().numpy())
        self._recent = []
        if not self._here:
            return np.zeros((0, *self._shape), np.float32)
        self._here = [np.concatenate(self._here)] if len(self._here) > 1 else self._here
        return self._here[0]

    def newest(self) -> np.ndarray:
        """[R, C] of the last step whose numbers are here; waits for a GPU only if none are."""
        while self._coming and (self._coming[0][1].query() or not self._here):
            self._receive()
        if self._recent and (self._recent[-1].device.type != "cuda" or not self._here):
            return self._recent[-1].cpu().numpy()
        return self._here[-1][-1]

    def _receive(self) -> None:
        """Wait for the first block on its way."""
        host, arrived = self._coming.pop(0)
        arrived.synchronize()
        self._here.append(host.numpy().copy())  # its pinned memory is used again
