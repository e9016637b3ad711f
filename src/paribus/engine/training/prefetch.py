"""Step inputs, generated on the host and copied to the device asynchronously.

Axes: R replicas, B batch, T time, M dropout modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import FIRST_DIGEST, Dataset, extend_digest, starts_of_step
from paribus.engine.data.tokens import windows
from paribus.engine.setting import Setting
from paribus.engine.training.schedules import LearningRates
from paribus.rng import key


class Inputs(NamedTuple):
    """Device tensors that a training step reads."""

    t: Tensor  # [] int64, step index
    windows: Tensor  # [R, B, T + 1] int32 tokens; the targets are the inputs shifted by one
    rates: Tensor  # [R] float32 learning rates
    dropout_keys: Tensor  # [M, R] int64


class Feed:
    """Generator of step inputs, which depend only on settings, seeds and step.

    Args:
        settings: One setting per replica.
        seeds: Seed of each replica.
        dataset: Tokens to train on.
        dropouts: Paths of the dropout modules.
        device: Device to copy the inputs to.
        folder: Folder against which the import path of a custom schedule is resolved.

    Attributes:
        digests: Running digest of each replica's batches.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        dataset: Dataset,
        dropouts: Sequence[str],
        device: torch.device,
        folder: Path | None = None,
    ) -> None:
        self._setting, self._seeds, self._dataset = settings[0], seeds, dataset
        self._dropouts, self._device = dropouts, device
        self._rates = LearningRates(settings, folder)
        self.digests = [FIRST_DIGEST] * len(seeds)

    def at(self, t: int) -> Inputs:
        """Return the inputs for step t. Steps must be requested in order."""
        dataset, setting = self._dataset, self._setting
        batches = []
        for r, seed in enumerate(self._seeds):
            starts = starts_of_step(dataset.windows, seed, t, setting)
            batches.append(windows(dataset.train, starts, setting.data.seq_len + 1))
            self.digests[r] = extend_digest(self.digests[r], batches[r])
        keys = [
            [key(seed, "dropout", name, t) % 2**63 for seed in self._seeds]
            for name in self._dropouts
        ]
        fields = (
            np.array(t),
            np.stack(batches).astype(np.int32),
            self._rates.at(t),
            np.array(keys, np.int64).reshape(len(keys), len(self._seeds)),
        )
        return Inputs(*map(self._to_device, fields))

    def _to_device(self, values: np.ndarray) -> Tensor:
        host = torch.from_numpy(values)
        if self._device.type == "cuda":  # a copy from pinned memory does not block the host
            return host.pin_memory().to(self._device, non_blocking=True)
        return host.to(self._device)
