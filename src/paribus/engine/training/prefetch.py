"""Inputs of every step, drawn on the host and copied to the device without waiting for it.

Axes: R replicas, B batch, T time, M dropout modules, S scheduled quantities.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import FIRST_DIGEST, Mixture, Tokens, Windows, extend_digest, step_batch
from paribus.engine.setting import Setting
from paribus.engine.training.schedules import Schedules
from paribus.rng import key


class Inputs(NamedTuple):
    """Inputs of one step on the device.

    Attributes:
        t: [] int64, the step.
        windows: [R, B, T + 1] int32 tokens; the targets are the inputs shifted by one.
        rates: [R] float32 learning rates.
        scheduled: [S, R] float32, in the order of `scheduled_columns`.
        dropout_keys: [M, R] int64.
    """

    t: Tensor
    windows: Tensor
    rates: Tensor
    scheduled: Tensor
    dropout_keys: Tensor


class Feed:
    """The inputs of every step for trials trained together, a pure function of settings, seeds
    and step.

    Attributes:
        digests: Each replica's running digest of its batches so far.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        tokens: Tokens,
        dropouts: Sequence[str],
        device: torch.device,
        windows: Windows | Mixture | None = None,
        folder: Path | None = None,
    ) -> None:
        self._setting = settings[0]
        self._seeds = seeds
        self._tokens = tokens
        self._windows = windows
        self._dropouts = dropouts
        self._device = device
        self._schedules = Schedules(settings, folder)
        self.restart([FIRST_DIGEST] * len(seeds))

    def restart(self, digests: Sequence[str]) -> None:
        """Continue with the running digests of the batches so far."""
        self.digests = list(digests)

    def at(self, t: int) -> Inputs:
        """Return the inputs of step t; steps must be requested in order."""
        windows = [
            step_batch(self._tokens, seed, t, self._setting, order=self._windows)
            for seed in self._seeds
        ]
        pairs = zip(self.digests, windows, strict=True)
        self.digests = [extend_digest(digest, rows) for digest, rows in pairs]
        keys = [
            [key(seed, "dropout", name, t) % 2**63 for seed in self._seeds]
            for name in self._dropouts
        ]
        fields = (
            np.array(t),
            np.stack(windows).astype(np.int32),
            *self._schedules.at(t),
            np.array(keys, np.int64).reshape(len(keys), len(self._seeds)),
        )
        return Inputs(*map(self._to_device, fields))

    def _to_device(self, values: np.ndarray) -> Tensor:
        host = torch.from_numpy(values)
        if self._device.type == "cuda":  # a copy from pinned memory does not block the host
            return host.pin_memory().to(self._device, non_blocking=True)
        return host.to(self._device)
