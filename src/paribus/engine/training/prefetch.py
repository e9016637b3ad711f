"""Inputs of every step: drawn some steps ahead, and brought to the device in one piece, so that a
GPU never waits for the host.

Axes: R replicas, B batch, T time, K steps ahead, M dropout modules, S scheduled quantities.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import FIRST_DIGEST, Mixture, Tokens, Windows, extend_digest, step_batch
from paribus.engine.setting import Setting
from paribus.engine.training.schedules import Schedules
from paribus.rng import key

AHEAD = 4


class Inputs(NamedTuple):
    """Of one step, or with a leading axis of several; on the device.

    Attributes:
        t: [] int64, the step.
        windows: [R, B, T + 1] int32, the tokens: inputs, and one later the targets.
        rates: [R] float32 learning rates.
        scheduled: [S, R] float32, what `scheduled_columns` names.
        dropout_keys: [M, R] int64.
    """

    t: Tensor
    windows: Tensor
    rates: Tensor
    scheduled: Tensor
    dropout_keys: Tensor


class Feed:
    """The inputs of every step of a stack, a pure function of settings, seeds and step.

    Args:
        settings: one per replica, alike but for what `Setting.common` leaves out.
        seeds: one per replica.
        tokens: [n] the training text.
        dropouts: names of the dropout modules in use.
        windows: which of its windows a step takes; by default any.
        folder: where import paths of the user's own schedules start.
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
        self._settings = settings
        self._seeds = seeds
        self._tokens = tokens
        self._windows = windows
        self._dropouts = dropouts
        self._device = device
        self._schedules = Schedules(settings, folder)
        self.restart(0, [FIRST_DIGEST] * len(seeds))

    def restart(self, t: int, digests: Sequence[str], ahead: int = AHEAD) -> None:
        """Go on from step t, with the running digests of the batches before it, and draw so many
        steps at once."""
        self._start, self._ahead = t, ahead
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
            steps = [self._draw(t)]
            while len(steps) < min(self._ahead, left) and self._is_alike(t, t + len(steps)):
                steps.append(self._draw(t + len(steps)))
            self._drawn = Inputs(
                *(self._to_device(np.stack(part)) for part in zip(*steps, strict=True))
            )
        return Inputs(*(part[t - self._start] for part in self._drawn))

    def _is_alike(self, t: int, other: int) -> bool:
        """Tell whether two steps have as many windows, so that they can travel together."""
        setting = self._settings[0]
        return setting.windows_in(t) == setting.windows_in(other)

    def _draw(self, t: int) -> tuple[np.ndarray, ...]:
        """Draw the fields of `Inputs` for step t."""
        of_step = partial(step_batch, order=self._windows)
        windows = [of_step(self._tokens, seed, t, self._settings[0]) for seed in self._seeds]
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
        if self._device.type == "cuda":
            # From pinned memory the copy waits in the queue of the device, and nobody for it.
            return host.pin_memory().to(self._device, non_blocking=True)
        return host.to(self._device)
