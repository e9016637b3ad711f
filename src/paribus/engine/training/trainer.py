"""Trainer that runs replicas of a model in lockstep.

Replicas differ in their seeds, and may differ in learning rate and weight decay. The trainer
handles steps, batches, probes, divergence and measurements; `Replicas` contains the weights.
Replicas share no arithmetic, so no replica affects the results of another.

Training rarely synchronizes with the device: inputs are copied asynchronously (`Feed`),
measurements are fetched in blocks (`Measured`), and on a GPU a step is one launch (`Graphs`).

In a trial on several devices, every rank runs the same trainer on its share of the batch, with the
same steps, losses, norms and weights.

Axes: R replicas, B batch, T time, C measured columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from paribus.engine.data import Dataset
from paribus.engine.observation import Probe
from paribus.engine.setting import Setting
from paribus.engine.training.graphs import Graphs, cuda_recorder
from paribus.engine.training.prefetch import Feed, Inputs
from paribus.engine.training.probing import Done, Kind, Probing
from paribus.engine.training.replicas import Replicas
from paribus.engine.training.state import MEASURED, Measured, ReplicaState
from paribus.engine.training.step_metrics import AUXILIARY, BATCH_SIZE, step_columns

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks

CLIP_EPS = 1e-6  # added to the norm, as in torch.nn.utils.clip_grad_norm_
NEVER = -1  # value of `diverged_at` for a replica that is still finite


class Trainer:
    """Lockstep trainer for replicas of a model, one per seed.

    Args:
        setting: Setting of all replicas, or one setting per replica with equal `Setting.common`.
        seeds: Seed of each replica, which determines initialization, data order and dropout.
        dataset: Tokens to train on.
        folder: Folder against which import paths of custom parts are resolved.
        device: Device to train on.
        probes: Diagnostics to record in addition to the trainer's own columns.
        strict: Whether to raise an error if a probe fails, instead of recording a missing value.
        graphs: Whether to capture and replay steps as CUDA graphs on a GPU.
        ranks: Process group that trains one replica, or None for a single process.
        devices: Number of devices that share a batch. Without `ranks`, this process trains all
            rows, in micro-batches of at most one device's share.
        checkpointing: Whether to recompute activations of blocks in the backward pass.

    Attributes:
        t: Number of completed steps.
        columns: {column: unit} of the trainer's own measurements.
        probes: Probes that are evaluated.
        probe_columns: Columns of the probes.
        replicas: Weights and optimizer state of all replicas.

    Raises ParibusError for unknown or incompatible parts.
    """

    def __init__(
        self,
        setting: Setting | Sequence[Setting],
        seeds: Sequence[int],
        dataset: Dataset,
        *,
        folder: Path | None = None,
        device: torch.device | str = "cpu",
        probes: Sequence[Probe] = (),
        strict: bool = True,
        graphs: bool = True,
        ranks: Ranks | None = None,
        devices: int = 1,
        checkpointing: bool = False,
    ) -> None:
        self.seeds = tuple(seeds)
        is_shared = isinstance(setting, Setting)
        self.settings = (setting,) * len(self.seeds) if is_shared else tuple(setting)
        self.setting = self.settings[0]
        self.device = torch.device(device)
        self.ranks, self.t = ranks, 0
        R, training = len(self.seeds), self.setting.training
        self.replicas = Replicas(
            self.settings,
            self.seeds,
            dataset.vocab_size,
            folder,
            self.device,
            ranks=ranks,
            devices=devices,
            checkpointing=checkpointing,
        )
        classes = torch.from_numpy(dataset.token_classes).to(self.device)
        self._probing = Probing(probes, self.setting, self.replicas, R, classes, strict=strict)
        self.probes, self.probe_columns = self._probing.probes, self._probing.columns
        self._diverged_at_R = torch.full((R,), NEVER, device=self.device)
        self.columns = step_columns(
            training, self.replicas.auxiliaries, is_plain=self.replicas.loss.is_plain
        )
        self._measured = Measured(len(self.columns) + len(self.probe_columns), R)
        self._feed = Feed(
            self.settings, self.seeds, dataset, self.replicas.dropouts, self.device, folder
        )
        records = self.device.type == "cuda" and graphs and ranks is None
        self._graphs = Graphs(cuda_recorder() if records else None)

    def step(self) -> None:
        """Train every replica for one step. Diverged replicas keep their weights."""
        inputs = self._feed.at(self.t)
        done = self._graphs(self._advance, inputs, self._probing.kind(self.t))
        self.replicas.afterwards(self.t)
        probed = self._probing.measure(self.t, done)
        measured_RC = torch.cat([done.measured, *probed], dim=1)
        self._measured.append(measured_RC.masked_fill(~done.was_alive[:, None], math.nan))
        self.t += 1

    def _advance(self, inputs: Inputs, kind: Kind) -> Done:
        """Train every replica for one step without host synchronization.

        The control flow does not depend on tensor values and is the same for all steps of a kind,
        so that the step can be captured as a CUDA graph.
        """
        replicas = self.replicas
        passed = replicas.forward_backward(inputs, kind.tapped)
        before = replicas.weights.clone() if kind.seen else replicas.weights
        norms_R = torch.linalg.vector_norm(passed.gradients.flat, dim=1)
        diverged_at_R, limit = self._diverged_at_R, self.setting.training.grad_clip
        was_alive_R = diverged_at_R == NEVER
        is_alive_R = was_alive_R & passed.means[0].isfinite() & norms_R.isfinite()
        diverged_at_R.copy_(torch.where(was_alive_R & ~is_alive_R, inputs.t, diverged_at_R))
        if limit is None:
            factors_R = torch.ones_like(norms_R)
        else:  # Pascanu et al. 2013
            factors_R = (limit / (norms_R + CLIP_EPS)).clamp(max=1.0)
        replicas.update(passed.gradients, factors_R, is_alive_R, inputs)
        names = ("train_loss", "train_objective", *(AUXILIARY + n for n in replicas.auxiliaries))
        columns = dict(zip(names, passed.means, strict=True))
        columns |= {"grad_norm": norms_R, "learning_rate": inputs.rates}
        if BATCH_SIZE in self.columns:
            columns[BATCH_SIZE] = torch.full_like(inputs.rates, inputs.windows.shape[1])
        return Done(
            measured=torch.stack([columns[name] for name in self.columns], dim=1),
            was_alive=was_alive_R,
            windows=replicas.own(inputs.windows),
            outputs=passed.outputs,
            before=before,
            gradients=passed.gradients,
        )

    @property
    def last_losses(self) -> list[float]:
        """Latest available training losses [R] in nats per token, or [] before the first step."""
        return self._measured.newest()[:, 0].tolist() if self.t else []

    @property
    def batch_digests(self) -> list[str]:
        """Running digest of each replica's batches."""
        return list(self._feed.digests)

    def parameters(self, replica: int) -> dict[str, np.ndarray]:
        """Return a replica's current evaluation weights, keyed by parameter name."""
        weights = self.replicas.evaluated(self.t)
        return {name: rows[replica].to("cpu", copy=True).numpy() for name, rows in weights.items()}

    def state(self, replica: int) -> ReplicaState:
        """Return a copy of a replica's full state, from which training can resume."""
        history = self.history(replica)
        return replace(history, arrays={**self.replicas.arrays(replica), **history.arrays})

    def history(self, replica: int) -> ReplicaState:
        """Return a copy of a replica's state without weights, averages and optimizer slots."""
        diverged_at = int(self._diverged_at_R[replica])
        return ReplicaState(
            t=self.t,
            arrays={MEASURED: self._measured.all()[:, replica].copy()},
            batch_digest=self.batch_digests[replica],
            diverged_at=None if diverged_at == NEVER else diverged_at,
        )

    def restore(self, states: Sequence[ReplicaState]) -> None:
        """Resume from the states of all replicas, at the same step and in the order of `seeds`."""
        self.t = states[0].t
        for r, state in enumerate(states):
            self.replicas.load(r, state.arrays)
            self._diverged_at_R[r] = NEVER if state.diverged_at is None else state.diverged_at
        self._feed.digests = [state.batch_digest for state in states]
        self._measured.replace(np.stack([state.measured for state in states], axis=1))
