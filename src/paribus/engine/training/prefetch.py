"""Inputs of every step: drawn some steps ahead, and brought to the device in one piece, so that a
GPU never waits for the host.

Axes: R replicas, B batch, T time, K steps ahead, M dropout modules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import FIRST_DIGEST, Mixture, Tokens, Windows, batch, extend_digest
from paribus.engine.setting import Setting
from paribus.engine.setting.setting import Schedule
from paribus.rng import key

AHEAD = 4


class Inputs(NamedTuple):
    """Of one step, or with a leading axis of several; on the device.

    Attributes:
        t: [] int64, the step.
        windows: [R, B, T + 1] int32, the tokens: inputs, and one later the targets.
        rates: [R] float32 learning rates.
        dropout_keys: [M, R] int64.
    """

    t: Tensor
    windows: Tensor
    rates: Tensor
    dropout_keys: Tensor


def learning_rate(peak: float, schedule: Schedule, t: int, iterations: int) -> float:
    """Return the learning rate of step t = 0, 1, ..., iterations - 1.

    Linear warmup: peak (t + 1) / warmup, so that step warmup - 1 is at the peak. After it the rate
    stays (constant), or falls along half a cosine (Loshchilov & Hutter 2017) that reaches
    `final_fraction` of the peak at the last step.
    """
    if t < schedule.warmup:
        return peak * (t + 1) / schedule.warmup
    if schedule.kind == "constant":
        return peak
    decay_steps = iterations - schedule.warmup
    progress = (t - schedule.warmup + 1) / decay_steps
    cosine = (1 + math.cos(math.pi * progress)) / 2
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * cosine)


class Feed:
    """The inputs of every step of a stack, a pure function of settings, seeds and step.

    Args:
        settings: one per replica, alike but for what `Setting.common` leaves out.
        seeds: one per replica.
        tokens: [n] the training text.
        dropouts: names of the dropout modules in use.
        windows: which of its windows a step takes; by default any.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        tokens: Tokens,
        dropouts: Sequence[str],
        device: torch.device,
        windows: Windows | Mixture | None = None,
    ) -> None:
        self._settings = settings
        self._seeds = seeds
        self._tokens = tokens
        self._windows = windows
        self._dropouts = dropouts
        self._device = device
        self.restart(0, [FIRST_DIGEST] * len(seeds))

    def restart(self, t: int, digests: Sequence[str]) -> None:
        """Go on from step t, with the running digests of the batches before it."""
        self._start = t
        self._digests = [list(digests)]  # before steps start, start + 1, ... of those drawn
        self._drawn: Inputs | None = None

    def digests(self, t: int) -> list[str]:
        """Return the running digest of every replica's batches before step t."""
        return list(self._digests[t - self._start])

    def at(self, t: int) -> Inputs:
        """Return the inputs of step t; steps are asked for in their order."""
        if self._drawn is None or t == self._start + len(self._drawn.t):
            self._start, self._digests = t, [self.digests(t)]
            left = max(self._settings[0].iterations - t, 1)
            steps = [self._draw(t + k) for k in range(min(AHEAD, left))]
            self._drawn = Inputs(
                *(self._to_device(np.stack(part)) for part in zip(*steps, strict=True))
            )
        return Inputs(*(part[t - self._start] for part in self._drawn))

    def _draw(self, t: int) -> tuple[np.ndarray, ...]:
        """Draw the fields of `Inputs` for step t."""
        setting = self._settings[0]
        size, seq_len = setting.training.batch_size, setting.data.seq_len
        order = self._windows
        run = self._settings[0].iterations
        windows = [batch(self._tokens, seed, t, size, seq_len, order, run) for seed in self._seeds]
        pairs = zip(self._digests[-1], windows, strict=True)
        self._digests.append([extend_digest(digest, rows) for digest, rows in pairs])
        keys = [
            [key(seed, "dropout", name, t) % 2**63 for seed in self._seeds]
            for name in self._dropouts
        ]
        return (
            np.array(t),
            np.stack(windows).astype(np.int32),
            np.array([self._rate(one, t) for one in self._settings], np.float32),
            np.array(keys, np.int64).reshape(len(keys), len(self._seeds)),
        )

    def _rate(self, setting: Setting, t: int) -> float:
        training = setting.training
        peak = training.optimizer.learning_rate
        return learning_rate(peak, training.schedule, t, setting.iterations)

    def _to_device(self, values: np.ndarray) -> Tensor:
        host = torch.from_numpy(values)
        if self._device.type == "cuda":
            # From pinned memory the copy waits in the queue of the device, and nobody for it.
            return host.pin_memory().to(self._device, non_blocking=True)
        return host.to(self._device)
