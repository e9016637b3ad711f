"""Held-out loss along the training of a stack: measured between steps, saved with it, recorded.

A point is the loss of each replica on the first `evaluation.curve_tokens` of the validation text.
It is measured by models of its own in float32, so that nothing of it reaches the training, and its
time is not charged to the training. On an accelerator replicas are read side by side; on a CPU one
after the other, which is faster there and to the bit what each gives alone.

Axes: R replicas.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from paribus.engine.data import Dataset, Tokens
from paribus.engine.evaluation import LossSum, heldout_loss, heldout_losses_together
from paribus.engine.machine.clock import wait
from paribus.engine.model import GPT, build_model
from paribus.engine.setting import Setting, curve_steps
from paribus.engine.training import Trainer
from paribus.results import TrialFolder
from paribus.results.curves import FILE
from paribus.study import Study

UNITS = {"step": "1", "loss_sum_nats": "nats", "predicted": "tokens"}


@dataclass(frozen=True)
class Point:
    """The held-out loss of a stack after `step` steps.

    Attributes:
        seconds: spent on training by then, by the whole stack.
        nats: [R] summed loss; None where it is not finite.
        tokens: that were predicted, by each replica.
    """

    step: int
    seconds: float
    nats: tuple[float | None, ...]
    tokens: int


class HeldOutCurve:
    """The curve of a stack; `points` are those that were measured so far."""

    def __init__(
        self,
        study: Study,
        settings: Sequence[Setting],
        arms: Sequence[str],
        dataset: Dataset,
        device: torch.device,
    ) -> None:
        self.points: list[Point] = []
        # The arms of a stack have one model and one budget, and so one list of steps.
        self._steps = frozenset(curve_steps(study, arms[0]))
        self._device, self._vocab_size = device, dataset.vocab_size
        self._tokens = heldout_part(study, dataset)
        self._settings = tuple(settings)
        self._models: dict[Setting, GPT] = {}
        self._folder = study.folder

    def is_due(self, t: int) -> bool:
        """Tell whether a point belongs after t steps, and is not there."""
        return t in self._steps and (not self.points or self.points[-1].step < t)

    def measure(self, trainer: Trainer, seconds: float) -> float:
        """Add the point of the trainer's step, which `seconds` of training led to.

        Returns the seconds that it took.
        """
        began = time.monotonic()
        found = self._together(trainer) if self._reads_together else self._alone(trainer)
        nats = tuple(one.nats if math.isfinite(one.nats) else None for one in found)
        self.points.append(Point(trainer.t, seconds, nats, len(self._tokens) - 1))
        wait(self._device)
        return time.monotonic() - began

    def _alone(self, trainer: Trainer) -> Iterator[LossSum]:
        rows = trainer.replicas.evaluated(trainer.t)
        for replica, setting in enumerate(self._settings):
            model = self._model(setting)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(rows[name][replica])
            yield heldout_loss(model, self._tokens, setting.data.seq_len, self._vocab_size)

    def _together(self, trainer: Trainer) -> list[LossSum]:
        models = [self._model(setting) for setting in self._settings]
        seq_len, rows = self._settings[0].data.seq_len, dict(trainer.replicas.evaluated(trainer.t))
        return heldout_losses_together(models, rows, self._tokens, seq_len, self._vocab_size)

    @property
    def _reads_together(self) -> bool:
        """An own module is called as it is evaluated: by itself."""
        own = any(setting.model.modules.named for setting in self._settings)
        return reads_together(self._device) and len(self._settings) > 1 and not own

    def _model(self, setting: Setting) -> GPT:
        """One for each setting: constants that follow from it may differ within a stack."""
        if setting not in self._models:
            model = build_model(setting, self._vocab_size, self._folder)
            self._models[setting] = model.to(self._device).eval()
        return self._models[setting]

    @property
    def saved(self) -> list[dict[str, Any]]:
        """The points as plain values, for a checkpoint."""
        return [asdict(point) for point in self.points]

    @staticmethod
    def points_of(saved: list[dict[str, Any]]) -> list[Point]:
        """Return the points that `saved` gave."""
        return [replace(Point(**one), nats=tuple(one["nats"])) for one in saved]

    def write(self, folder: TrialFolder, replica: int) -> None:
        """curve.parquet of one replica: a row for each point; none where no curve is measured."""
        nats = [math.nan if p.nats[replica] is None else p.nats[replica] for p in self.points]
        columns = {
            "step": np.array([point.step for point in self.points], dtype=np.int64),
            "loss_sum_nats": np.array(nats, dtype=np.float64),
            "predicted": np.array([point.tokens for point in self.points], dtype=np.int64),
        }
        folder.write_columns(FILE, columns, UNITS)

    @property
    def seconds(self) -> list[float]:
        """When each point was reached: seconds of training, each replica charged its part."""
        return [point.seconds / len(self._settings) for point in self.points]


def reads_together(device: torch.device) -> bool:
    """Tell whether replicas are read side by side there."""
    return device.type != "cpu"


def heldout_part(study: Study, dataset: Dataset) -> Tokens:
    """Return what of the validation text a point is measured on: its first tokens."""
    return dataset.validation[: study.evaluation.curve_tokens + 1]
