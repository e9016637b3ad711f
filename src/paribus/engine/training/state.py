"""Resumable state of a replica, and its measurements.

Axes: R replicas, C columns, K steps in a block, t completed steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 16  # number of steps whose measurements are fetched from a device together
# Prefixes in the names of `ReplicaState.arrays`, in addition to the slots of optimizers.
MEASURED, WEIGHTS, AVERAGE = "measured", "weights", "average"
RESERVED = (WEIGHTS, MEASURED, AVERAGE)


@dataclass(frozen=True)
class ReplicaState:
    """State that is needed to resume and record one replica.

    Attributes:
        t: Number of completed steps.
        arrays: float32 arrays, keyed by name. Names are `weights/<parameter>`,
            `<slot>/<parameter>` for optimizer state, `average/<parameter>` for averaged weights,
            and `measured` [t, C] for the values of `Trainer.columns` and then
            `Trainer.probe_columns`, with NaN if missing.
        batch_digest: Running digest of the batches.
        diverged_at: Step at which the loss or gradient became non-finite, or None.
    """

    t: int
    arrays: Mapping[str, np.ndarray]
    batch_digest: str
    diverged_at: int | None

    @property
    def measured(self) -> np.ndarray:
        """Measurements of all completed steps, [t, C] (see `arrays`)."""
        return self.arrays[MEASURED]


class Measured:
    """Buffer of each step's measurements, float32 [R, C], fetched from the device in blocks."""

    def __init__(self, n_columns: int, n_replicas: int) -> None:
        self._rows = np.zeros((0, n_replicas, n_columns), np.float32)
        self._blocks: list[np.ndarray] = []  # [K, R, C] each
        self._recent: list[Tensor] = []

    def append(self, row_RC: Tensor) -> None:
        """Add the measurements of the latest step."""
        self._recent.append(row_RC)
        if len(self._recent) == BLOCK:
            self._fetch()

    def replace(self, rows_tRC: np.ndarray) -> None:
        """Replace the measurements of all steps."""
        self._rows, self._blocks, self._recent = rows_tRC, [], []

    def all(self) -> np.ndarray:
        """Synchronize with the device, and return the measurements of all steps, [t, R, C]."""
        self._fetch()
        if self._blocks:
            self._rows, self._blocks = np.concatenate([self._rows, *self._blocks]), []
        return self._rows

    def newest(self) -> np.ndarray:
        """Return the latest measurements [R, C] on the host, synchronizing only if none exist.

        On a GPU, these may be up to BLOCK steps old.
        """
        if self._recent and (not self._recent[-1].is_cuda or not self._blocks):
            return self._recent[-1].cpu().numpy()
        return self._blocks[-1][-1] if self._blocks else self._rows[-1]

    def _fetch(self) -> None:
        if self._recent:
            self._blocks.append(torch.stack(self._recent).cpu().numpy())
            self._recent = []
