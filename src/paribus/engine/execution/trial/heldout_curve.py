"""Held-out loss curve of a stack, measured between training steps.

A point is the loss of each replica on the first `evaluation.curve_tokens` of the validation text.
Separate float32 models measure it, so that it does not affect the training; its time does not count
as training time. Replicas are evaluated one after the other, so each has the same bits as when
evaluated alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from paribus.digests import plain
from paribus.engine.data import Dataset
from paribus.engine.evaluation.heldout import heldout_loss
from paribus.engine.model import GPT, build_model, load_parameters
from paribus.engine.setting import curve_steps
from paribus.engine.training import Trainer
from paribus.results import TrialFolder
from paribus.results.curves import FILE
from paribus.study import Study

UNITS = {"step": "1", "loss_sum_nats": "nats", "predicted": "tokens"}


class HeldOutCurve:
    """The curve of a stack.

    Attributes:
        points: the points so far, in the form of a checkpoint: `step`, summed loss of each replica
            in `nats` (None if not finite), and number of `tokens`.
    """

    def __init__(
        self, study: Study, arms: Sequence[str], dataset: Dataset, device: torch.device
    ) -> None:
        self.points: list[dict[str, Any]] = []
        # The arms of a stack have one model and one budget, and so one list of steps.
        self._steps = frozenset(curve_steps(study, arms[0]))
        self._study, self._arms, self._dataset, self._device = study, arms, dataset, device
        self._models: dict[str, GPT] = {}  # by arm; each point loads other weights into them
        self._tokens = dataset.validation[: study.evaluation.curve_tokens + 1]

    def is_due(self, t: int) -> bool:
        """Return whether a point after t steps is due and not yet measured."""
        return t in self._steps and (not self.points or self.points[-1]["step"] < t)

    def measure(self, trainer: Trainer) -> float:
        """Measure and add the point of the trainer's step; return how many seconds that took."""
        began, sums = time.monotonic(), list[float]()
        seq_len = trainer.setting.data.seq_len
        for replica, arm in enumerate(self._arms):
            if arm not in self._models:
                setting, folder = self._study.setting(arm), self._study.folder
                model = build_model(setting, self._dataset.vocab_size, folder)
                self._models[arm] = model.to(self._device).eval()
            model = self._models[arm]
            load_parameters(model, trainer.parameters(replica))
            sums.append(heldout_loss(model, self._tokens, seq_len, self._dataset.vocab_size))
        tokens = len(self._tokens) - 1
        self.points.append({"step": trainer.t, "nats": plain(sums), "tokens": tokens})
        return time.monotonic() - began

    def write(self, folder: TrialFolder, replica: int) -> None:
        """Write curve.parquet of a replica: a row for each point."""
        nats = [point["nats"][replica] for point in self.points]
        columns = {
            "step": np.array([point["step"] for point in self.points], dtype=np.int64),
            "loss_sum_nats": np.array(nats, dtype=np.float64),  # None becomes NaN
            "predicted": np.array([point["tokens"] for point in self.points], dtype=np.int64),
        }
        folder.write_columns(FILE, columns, UNITS)
