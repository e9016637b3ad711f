"""Inputs of every step, drawn a few steps ahead and copied to the device together.

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

AHEAD = 4  # steps


class Inputs(NamedTuple):
    """Inputs of one step on the device, or of several with a leading axis.

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
    and step."""

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
        self.restart(0, [FIRST_DIGEST] * len(seeds))

    def restart(self, t: int, digests: Sequence[str]) -> None:
        """Continue at step t, with the running digests of the batches before it."""
        self._start = t
        self._digests = [list(digests)]  # before steps start, start + 1, ...
        self._drawn: Inputs | None = None

    def digests(self, t: int) -> list[str]:
        """Return each replica's running digest of the batches before step t."""
        return list(self._digests[t - self._start])

    def at(self, t: int) -> Inputs:
        """Return the inputs of step t; steps must be requested in order."""
        if self._drawn is None or t == self._start + len(self._drawn.t):
            self._start, self._digests = t, [self.digests(t)]
            last = min(t + AHEAD, max(self._setting.iterations, t + 1))
            steps = [self._draw(t)]
            for later in range(t + 1, last):
                if self._setting.windows_in(later) != self._setting.windows_in(t):
                    break
                steps.append(self._draw(later))
            self._drawn = Inputs(
                *(self._to_device(np.stack(part)) for part in zip(*steps, strict=True))
            )
        return Inputs(*(part[t - self._start] for part in self._drawn))

    def _draw(self, t: int) -> tuple[np.ndarray, ...]:
        """Return the fields of `Inputs` for step t."""
        windows = [
            step_batch(self._tokens, seed, t, self._setting, order=self._windows)
            for seed in self._seeds
        ]
        pairs = zip(self._digests[-1], windows, strict=True)
        self._digests.append([extend_digest(digest, rows) for digest, rows in pairs])
        keys = [
            [key(seed, "dropout", name, t) % 2**63 for seed in self._seeds]
            for name in self._dropouts
        ]
        return (
            np.array(t),
            np.stack(windows).astype(np.int32),
            *self._schedules.at(t),
            np.array(keys, np.int64).reshape(len(keys), len(self._seeds)),
        )

    def _to_device(self, values: np.ndarray) -> Tensor:
        host = torch.from_numpy(values)
        if self._device.type == "cuda":  # a copy from pinned memory does not block the host
            return host.pin_memory().to(self._device, non_blocking=True)
        return host.to(self._device)
