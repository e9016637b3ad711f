"""State of a replica: named arrays that training goes on from, and what was measured so far.

Axes: R replicas, C columns, K steps of a block, t steps so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paribus.errors import ParibusError

BLOCK = 16
MEASURED = "measured"  # in the names of `ReplicaState.arrays`
WEIGHTS = "weights"  # the same, before a parameter's name; slots of optimizers have names beside it
TAKEN = (WEIGHTS, MEASURED, "loss_scale")  # what no slot can be called


@dataclass(frozen=True)
class ReplicaState:
    """All that is needed to go on with one replica, and to record it.

    Attributes:
        t: steps done.
        arrays: float32, by name: `weights/<parameter>`, what the optimizer keeps for it such as
            `exp_avg/<parameter>`, of an average `average-0/<parameter>`, in float16
            `loss_scale/...`, and `measured` [t, C]: `Trainer.columns`, then
            `Trainer.probe_columns`; NaN where not measured.
        batch_digest: the running digest of its batches.
        diverged_at: the step at which it turned non-finite, or None.
    """

    t: int
    arrays: Mapping[str, np.ndarray]
    batch_digest: str
    diverged_at: int | None

    @property
    def measured(self) -> np.ndarray:
        """The array [t, C] of what was measured."""
        return self.arrays[MEASURED]


def require_shapes(arrays: Mapping[str, np.ndarray], expected: Mapping[str, Sequence[int]]) -> None:
    """Raise ParibusError where `arrays` have other names or shapes than what is trained."""
    words = None
    for name in sorted(expected.keys() | arrays.keys()):
        if name not in arrays:
            words = f"has no '{name}'"
        elif name not in expected:
            words = f"has '{name}', which is not trained here"
        elif arrays[name].shape != tuple(expected[name]):
            words = f"has '{name}' as {arrays[name].shape}; here it is {tuple(expected[name])}"
        if words:
            raise ParibusError(
                f"the checkpoint is of another model, optimizer or probes: it {words}; go on with "
                "what it was written by, or delete it and train the trial again"
            )


class Measured:
    """Rows [R, C] float32, one per step: kept on the device, and fetched from there in blocks."""

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
        """Return [t, R, C]; waits for the device."""
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
        """Return [R, C] of the last step whose numbers are here; waits only if none are."""
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
