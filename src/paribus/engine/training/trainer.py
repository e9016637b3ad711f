"""The trainer: the replicas of one model, trained in lockstep.

They differ in their seeds, and may differ in learning rate, weight decay and initial weights. The
trainer keeps the clock, the batches, probes, divergence and what was measured; the `Replicas` have
the numbers. Replicas share no arithmetic, so what happens to one changes no bit of another.

Nothing here asks the device for a value while it trains: batches arrive ahead (`Feed`), what is
measured leaves in blocks (`Measured`), and on a GPU a step is one launch (`Graphs`).

Over several devices every rank runs the same trainer on its rows of the batch, and has the same
clock, losses, norms and weights.

Axes: R replicas, B batch, T time, C measured columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import Dataset
from paribus.engine.observation import Probe
from paribus.engine.setting import Ramp, Setting
from paribus.engine.training.graphs import Graphs, cuda_recorder
from paribus.engine.training.prefetch import AHEAD, Feed, Inputs
from paribus.engine.training.probing import Done, Kind, Probing
from paribus.engine.training.replicas import ForwardBackward, Replicas
from paribus.engine.training.safeguards import Divergence, LossScaling, clip_factors
from paribus.engine.training.schedules import scheduled_columns
from paribus.engine.training.state import (
    MEASURED,
    WEIGHTS,
    Measured,
    ReplicaState,
    require_shapes,
)
from paribus.engine.training.step_metrics import AUXILIARY, BATCH_SIZE, step_columns

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks


class Trainer:
    """Trains replicas side by side, one per seed.

    Args:
        setting: what they are all trained with; or one setting per replica, alike in all that
            `Setting.common` says.
        seeds: one per replica; initialisation, data order and dropout follow from it.
        dataset: the tokens.
        folder: where import paths of the user's own parts start.
        device: where to train.
        probes: what else to measure.
        strict: whether a probe that fails is an error, or a value that is absent.
        graphs: whether a GPU's steps are recorded, and replayed as one launch each.
        ranks: the processes that train one replica together; None is this process alone.
        devices: over how many devices batches are shared. Without `ranks` this process trains all
            rows, and no more of them at once than one of the devices would.
        checkpointing: whether activations of a block are computed again in the backward pass.

    Raises ParibusError for a part that is unknown or does not fit, ValueError for settings that
    cannot share a stack or leave their precision open.
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
        self.settings = _one_per_seed(setting, self.seeds)
        self.setting = self.settings[0]
        self.device = torch.device(device)
        self.t = 0
        R = len(self.seeds)
        self.ranks, self.devices = ranks, devices
        self.replicas = Replicas(
            *(self.settings, self.seeds, dataset.vocab_size, folder, self.device),
            ranks=ranks,
            devices=devices,
            checkpointing=checkpointing,
        )
        self.initial_records = self.replicas.initial_records
        classes = torch.from_numpy(dataset.token_classes).to(self.device)
        self._probing = Probing(probes, self.setting, self.replicas, R, classes, strict=strict)
        self.probes, self.probe_columns = self._probing.probes, self._probing.columns
        training = self.setting.training
        self._scaling = (
            LossScaling(training.loss_scale, R, self.device)
            if training.precision == "float16"
            else None
        )
        self.columns = step_columns(
            self.replicas.loss.is_plain and not self.replicas.auxiliaries,
            scales_loss=self._scaling is not None,
            scheduled=scheduled_columns(training),
            auxiliaries=self.replicas.auxiliaries,
            grows=isinstance(training.batch_size, Ramp),
        )
        self._divergence = Divergence(R, self.device)
        self._measured = Measured(len(self.columns) + len(self.probe_columns), R)
        dropouts = self.replicas.dropouts
        self._feed = Feed(
            *(self.settings, self.seeds, dataset.train, dropouts, self.device),
            windows=dataset.windows,
            folder=folder,
        )
        records = self.device.type == "cuda" and graphs and ranks is None
        self._graphs = Graphs(cuda_recorder() if records else None)

    def step(self) -> None:
        """Make one optimizer step of every replica that is still finite."""
        kind = self._probing.kind(self.t)
        inputs = self._feed.at(self.t)
        done = self._graphs(self._advance, inputs, kind)
        self.replicas.afterwards(self.t)
        probed = self._probing.measure(self.t, done)
        measured_RC = torch.cat([done.measured, *probed], dim=1)
        self._measured.append(measured_RC.masked_fill(~done.was_alive[:, None], math.nan))
        self.t += 1

    def _advance(self, inputs: Inputs, kind: Kind) -> Done:
        """Make one optimizer step without host synchronisation.

        Control flow never reads tensor values, and is the same for every step of a kind: a GPU
        records it once.
        """
        replicas = self.replicas
        scaling = self._scaling
        scales_R = scaling.scales.clone() if scaling else None
        found = replicas.forward_backward(inputs, kind.tapped, scales_R)
        before = replicas.weights.clone() if kind.seen else replicas.weights
        norms_R = replicas.norms(found.gradients)
        # Adam's own count, as torch.optim's: a step that is skipped is none.
        t = inputs.t - scaling.skipped if scaling else inputs.t
        was_alive, moves_R = self._judged(found, norms_R, inputs.t)
        factors_R = clip_factors(norms_R, self.setting.training.grad_clip)
        replicas.update(found.gradients, factors_R, moves_R, inputs.rates, inputs.scheduled, t)
        columns = {
            "train_loss": found.losses,
            "grad_norm": norms_R,
            "learning_rate": inputs.rates,
            "train_objective": found.objectives,
        }
        columns |= zip(scheduled_columns(self.setting.training), inputs.scheduled, strict=True)
        if BATCH_SIZE in self.columns:
            columns[BATCH_SIZE] = torch.full_like(inputs.rates, inputs.windows.shape[1])
        for number, name in enumerate(replicas.auxiliaries):
            columns[f"{AUXILIARY}{name}"] = found.auxiliaries[number]
        if scaling and scales_R is not None:
            columns |= {"loss_scale": scales_R, "skipped_steps": scaling.skipped.float()}
        measured_RC = torch.stack([columns[name] for name in self.columns], dim=1)
        windows = replicas.own(inputs.windows)
        return Done(measured_RC, was_alive, windows, found.outputs, before, found.gradients)

    def _judged(self, found: ForwardBackward, norms_R: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return ([R] who was alive before step t, [R] whose weights move in it)."""
        divergence, finite_R = self._divergence, norms_R.isfinite()
        if self._scaling is None:
            was_alive = divergence.judge(found.losses.isfinite() & finite_R, t)
            return was_alive, divergence.alive
        goes_on_R = found.losses.isfinite() & (finite_R | self._scaling.can_halve)
        was_alive = divergence.judge(goes_on_R, t)
        moves_R = divergence.alive & finite_R
        self._scaling.settle(moves_R, divergence.alive & ~finite_R)
        return was_alive, moves_R

    @property
    def last_losses(self) -> list[float]:
        """The training loss of every replica, in nats per token: at the last step, or on a GPU at
        the last one whose numbers have arrived."""
        return self._measured.newest()[:, 0].tolist() if self.t else []

    @property
    def batch_digests(self) -> list[str]:
        """The running digest of every replica's batches so far."""
        return self._feed.digests(self.t)

    def logits(
        self, tokens_RBT: Tensor, tapped: Sequence[str] = (), *, mixed: bool = True
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute what the coming step would of these tokens: nothing is learned from them.

        Args:
            tokens_RBT: [R, B, T] int64, on the trainer's device.
            tapped: paths of the modules whose outputs are wanted.
            mixed: False computes in float32 whatever the setting's precision.

        Returns (logits [R, B, T, V], {path: [R, ...]}).
        """
        keys = self._feed.at(self.t).dropout_keys
        return self.replicas.logits(keys, tokens_RBT, tapped, mixed=mixed)

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Give every replica these weights, by parameter name."""
        for replica in range(len(self.seeds)):
            named = {f"{WEIGHTS}/{name}": values for name, values in weights.items()}
            self.replicas.load(replica, named)

    def parameters(self, replica: int) -> dict[str, np.ndarray]:
        """Return the weights of one replica by parameter name, as they are evaluated now."""
        weights = self.replicas.evaluated(self.t)
        return {name: rows[replica].cpu().numpy().copy() for name, rows in weights.items()}

    def state(self, replica: int) -> ReplicaState:
        """Copy everything that replica number `replica` goes on from."""
        told = self.history(replica)
        scaling = self._scaling.arrays(replica) if self._scaling else {}
        return replace(told, arrays={**self.replicas.arrays(replica), **scaling, **told.arrays})

    def history(self, replica: int) -> ReplicaState:
        """Copy the same without its weights and what its optimizer keeps."""
        return ReplicaState(
            t=self.t,
            arrays={MEASURED: self._measured.all()[:, replica].copy()},
            batch_digest=self.batch_digests[replica],
            diverged_at=self._divergence.at(replica),
        )

    def restore(self, states: Sequence[ReplicaState]) -> None:
        """Go on from states of one step, one per seed and in the order of the seeds.

        Raises ParibusError, and changes nothing, where a state has other arrays than this stack.
        """
        steps = {state.t for state in states}
        if len(states) != len(self.seeds) or len(steps) != 1:
            raise ValueError(f"{len(self.seeds)} states of one step are needed, not {steps}")
        n_columns = len(self.columns) + len(self.probe_columns)
        expected = self.replicas.shapes
        for state in states:
            more = {
                **(self._scaling.shapes if self._scaling else {}),
                MEASURED: (state.t, n_columns),
            }
            require_shapes(state.arrays, {**expected, **more})
        self.t = steps.pop()
        for r, state in enumerate(states):
            self.replicas.load(r, {name: state.arrays[name] for name in expected})
            self._divergence.restore(r, state.diverged_at)
            if self._scaling:
                self._scaling.load(r, state.arrays)
        self._feed.restart(self.t, [state.batch_digest for state in states])
        self._measured.replace(np.stack([state.measured for state in states], axis=1))

    def go_to(self, t: int, ahead: int = AHEAD) -> None:
        """Go on from step t with the weights as they are, for whoever measures steps; `ahead`: how
        many follow in their order."""
        self._feed.restart(t, self.batch_digests, ahead)
        self.t = t

    def go_to_largest_batch(self) -> None:
        """Go to the first step of the largest batch, where a step takes most."""
        setting = self.setting
        if isinstance(setting.training.batch_size, Ramp):
            self.go_to(setting.iterations - setting.n_largest)


def _one_per_seed(
    setting: Setting | Sequence[Setting], seeds: Sequence[int]
) -> tuple[Setting, ...]:
    """Return settings that can share a stack. Raises ValueError where they cannot."""
    settings = (setting,) * len(seeds) if isinstance(setting, Setting) else tuple(setting)
    if len(settings) != len(seeds) or any(one.common != settings[0].common for one in settings):
        raise ValueError("a stack needs one setting per seed, alike in what they have in common")
    if settings[0].training.precision == "auto":
        raise ValueError("precision 'auto' is settled before training: study.with_precision")
    return settings
