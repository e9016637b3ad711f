"""State of a replica: named arrays to resume training from, and its measurements so far.

Axes: R replicas, C columns, K steps of a block, t steps so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 16  # steps whose measurements are fetched from a device together
# Prefixes in the names of `ReplicaState.arrays`, beside the slots of optimizers.
MEASURED, WEIGHTS, AVERAGE = "measured", "weights", "average"
RESERVED = (WEIGHTS, MEASURED, AVERAGE)


@dataclass(frozen=True)
class ReplicaState:
    """Everything needed to resume one replica, and to record it.

    Attributes:
        t: Steps done.
        arrays: float32, by name: `weights/<parameter>`; slots of the optimizer such as
            `exp_avg/<parameter>`; `average/<parameter>` with an average of weights;
            and `measured` [t, C], which holds `Trainer.columns`, then `Trainer.probe_columns`, NaN
            where nothing was measured.
        batch_digest: Running digest of its batches.
        diverged_at: The step at which it became non-finite, or None.
    """

    t: int
    arrays: Mapping[str, np.ndarray]
    batch_digest: str
    diverged_at: int | None

    @property
    def measured(self) -> np.ndarray:
        """Measurements, [t, C]."""
        return self.arrays[MEASURED]


class Measured:
    """Rows [R, C] float32, one per step, kept on the device and fetched in blocks."""

    def __init__(self, n_columns: int, n_replicas: int) -> None:
        self._rows = np.zeros((0, n_replicas, n_columns), np.float32)
        self._blocks: list[np.ndarray] = []  # [K, R, C] each
        self._recent: list[Tensor] = []

    def append(self, row_RC: Tensor) -> None:
        """Add the row of the step just made."""
        self._recent.append(row_RC)
        if len(self._recent) == BLOCK:
            self._fetch()

    def replace(self, rows_tRC: np.ndarray) -> None:
        """Replace all rows."""
        self._rows, self._blocks, self._recent = rows_tRC, [], []

    def all(self) -> np.ndarray:
        """Return [t, R, C]; waits for the device."""
        self._fetch()
        if self._blocks:
            self._rows, self._blocks = np.concatenate([self._rows, *self._blocks]), []
        return self._rows

    def newest(self) -> np.ndarray:
        """Return the row [R, C] of the last step that has arrived; wait only if none has."""
        if self._recent and (not self._recent[-1].is_cuda or not self._blocks):
            return self._recent[-1].cpu().numpy()
        return self._blocks[-1][-1] if self._blocks else self._rows[-1]

    def _fetch(self) -> None:
        if self._recent:
            self._blocks.append(torch.stack(self._recent).cpu().numpy())
            self._recent = []
