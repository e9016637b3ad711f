"""Model replicas that are trained together on one device.

Axes: R replicas, N parameters in one replica, B batch, T time, V vocabulary, A auxiliary losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paribus.engine.model import Dropout, build_model, initial_parameters
from paribus.engine.model.shared import Shared
from paribus.engine.model.side_by_side import SideBySide
from paribus.engine.observation import capture
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting, rows_of
from paribus.engine.training.averages import find_average
from paribus.engine.training.groups import parameter_groups
from paribus.engine.training.losses import TrainingLoss, find_loss
from paribus.engine.training.losses.cross_entropy import PLAIN
from paribus.engine.training.prefetch import Inputs
from paribus.engine.training.stacked_optimizer import StackedOptimizer
from paribus.engine.training.state import AVERAGE, WEIGHTS
from paribus.errors import ParibusError, nearest

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks


class ForwardBackward(NamedTuple):
    """Losses, gradients and module outputs of a forward and backward pass."""

    # [2 + A, R] means over the batch: cross-entropy in nats per token, the training objective, and
    # unweighted auxiliary losses
    means: Tensor
    gradients: Rows  # {parameter name: [R, ...]} before clipping
    outputs: dict[str, Tensor]  # outputs of the tapped modules, [R, B, ...] each


class Replicas:
    """R replicas of a model on one device, with all weights in one tensor [R, N].

    Replicas differ in seed and possibly in learning rate and weight decay, and do not affect each
    other. The model is a plain module, which `torch.func.vmap` maps over the replicas; with a
    single replica, it is called directly. Only `arrays` and `load` access tensor values on the
    host. See `Trainer` for the arguments.

    Attributes:
        model: Module that computes one replica; if R > 1, its own weights are unused.
        weights: {parameter name: [R, ...]} weights.
        slots: {slot: {parameter name: [R, ...]}} optimizer state.
        initial_records: Each replica's entries in initial.json, keyed by parameter name.
        dropouts: Paths of the dropout modules.
        loss: Training loss.
        auxiliaries: Names of the auxiliary losses that parts of the model declare.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        vocab_size: int,
        folder: Path | None,
        device: torch.device,
        *,
        ranks: Ranks | None = None,
        devices: int = 1,
        checkpointing: bool = False,
    ) -> None:
        setting, training = settings[0], settings[0].training
        self._R, self._device, self._ranks = len(seeds), device, ranks
        self._lower = torch.bfloat16 if training.precision == "bfloat16" else None
        self.model = build_model(setting, vocab_size, folder).to(device).train()
        self._dropouts = {
            name: module
            for name, module in self.model.named_modules()
            if isinstance(module, Dropout) and module.p > 0
        }
        self.dropouts = tuple(self._dropouts)
        self.loss = find_loss(training.loss, folder)
        self.auxiliaries = self.model.auxiliaries
        self._auxiliary_weights = training.loss.auxiliary
        self._require_compatible(devices, checkpointing)
        # Built-in parts call `ops` directly.
        listens = bool(setting.model.modules.named) and device.type == "cpu"
        self._mode = partial(SideBySide, None) if listens else nullcontext
        if checkpointing:
            recompute_blocks(self.model)
        batch = training.largest_batch
        rows = math.ceil(batch / devices) if ranks is None else rows_of(setting, ranks.size)
        self._micro_batch = min(training.micro_batch or rows, rows)

        self._groups = parameter_groups(settings, self.model, folder)
        parameters = dict(self.model.named_parameters())
        # Parameters that are updated together are adjacent.
        self._shapes = {n: parameters[n].shape for group in self._groups for n in group.names}
        drawn = [initial_parameters(self.model, setting, seed) for seed in seeds]
        self.initial_records = [
            {name: parameter.record for name, parameter in each.items()} for each in drawn
        ]
        values = [np.concatenate([each[n].value.ravel() for n in self._shapes]) for each in drawn]
        self.weights = Rows(torch.from_numpy(np.stack(values)).to(device), self._shapes)
        self._leaves = self._make_leaves(parameters)
        self._optimizer = StackedOptimizer(self._groups, self.weights)
        self.slots = self._optimizer.slots
        self._averaging = find_average(training.average, self.weights, folder)
        self._rows = {WEIGHTS: self.weights, **self.slots}
        if self._averaging:
            self._rows[AVERAGE] = self._averaging.kept

    def _require_compatible(self, devices: int, checkpointing: bool) -> None:
        """Raise ParibusError for settings that parts of the model do not support."""
        for name in self._auxiliary_weights:
            if name not in self.auxiliaries:
                raise ParibusError(
                    f"training.loss.auxiliary.{name} weights an auxiliary loss that no part of the "
                    f"model declares; {nearest(name, self.auxiliaries)}",
                    code="unknown",
                )
        if devices > 1 and self.auxiliaries:
            raise ParibusError(
                "auxiliary losses require the whole batch on one device, but "
                f"resources.devices_per_trial is {devices}; remove resources.devices_per_trial",
                code="unsupported",
            )
        if checkpointing and self.model.shares:
            raise ParibusError(
                "resources.checkpoint_activations calls each block twice, but parts with an "
                "argument `shared` may be called only once per step; set it to false",
                code="unsupported",
            )

    def _make_leaves(self, parameters: Mapping[str, nn.Parameter]) -> list[Tensor]:
        """Return the leaf tensors that gradients are computed for, in the order of `weights`.

        These are views of `weights`, or the model's own parameters for a single replica.
        """
        if self._R > 1:
            return [tensor.detach().requires_grad_() for tensor in self.weights.values()]
        for name, row in self.weights.items():
            parameters[name].data = row[0]
        return [parameters[name] for name in self._shapes]

    def corrections(self, t: int) -> dict[str, dict[str, float]]:
        """Return bias-correction divisors at step t as {slot: {parameter name: divisor}}."""
        divisors = {slot: dict[str, float]() for slot in self.slots}
        for group in self._groups:
            if corrections := group.optimizer.corrections:
                for slot, value in corrections(group.options, t).items():
                    divisors[slot] |= dict.fromkeys(group.names, value)
        return divisors

    def evaluated(self, done: int) -> Rows:
        """Return the weights [R, ...] to evaluate, save and export after `done` steps."""
        return self._averaging.kept if self._averaging and done else self._optimizer.evaluated()

    def afterwards(self, t: int) -> None:
        """Call the optimizers' `afterwards` functions and update the average after step t."""
        self._optimizer.afterwards(t)
        if self._averaging:
            self._averaging.take(t + 1, self._optimizer.evaluated())

    def forward_backward(self, inputs: Inputs, tapped: Sequence[str]) -> ForwardBackward:
        """Compute losses, gradients, and the outputs of the modules at the paths `tapped`.

        The batch is processed `micro_batch` sequences at a time. With several ranks, losses and
        gradients are means over the whole batch, but outputs contain only this rank's rows.
        """
        rows = self._own_rows(inputs.windows.shape[1])
        parts = inputs.windows[:, rows].long().split(self._micro_batch, dim=1)
        means: list[Tensor] = []
        outputs: dict[str, list[Tensor]] = {path: [] for path in tapped}
        grads_RN = None
        for number, windows in enumerate(parts):
            for dropout in self._dropouts.values():  # number of preceding sequences in the batch
                dropout.first = rows.start + number * self._micro_batch
            with self._mode():  # recomputed blocks need it in the backward pass, too
                logits_RBTV, tapped_outputs, auxiliary = self._forward(
                    inputs.dropout_keys, windows[..., :-1].contiguous(), tapped
                )
                losses_R, objectives_R = losses_of(self.loss, logits_RBTV, windows[..., 1:])
                if auxiliary:
                    weights = self._auxiliary_weights
                    terms = [weights.get(n, 1.0) * x for n, x in auxiliary.items()]
                    objectives_R = objectives_R + torch.stack(terms).sum(0)
                grads = torch.autograd.grad(
                    objectives_R.sum(), self._leaves, allow_unused=True, materialize_grads=True
                )
            part_RN = torch.cat([grad.reshape(self._R, -1) for grad in grads], dim=1)
            grads_RN = part_RN if grads_RN is None else grads_RN.add_(part_RN)
            columns = (losses_R, objectives_R, *auxiliary.values())
            means.append(torch.stack(columns).detach())
            for path, output in tapped_outputs.items():
                outputs[path].append(output)
        assert grads_RN is not None
        if len(parts) > 1:  # parts have equal sizes, so the mean of means is the batch's mean
            grads_RN.div_(len(parts))
        mean = torch.stack(means).mean(dim=0)
        if self._ranks is not None:
            self._ranks.average(grads_RN, mean)
        kept = {  # a single part is not copied
            path: tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=1)
            for path, tensors in outputs.items()
            if tensors
        }
        return ForwardBackward(mean, self.weights.like(grads_RN), kept)

    def _forward(
        self, dropout_keys: Tensor, tokens_RBT: Tensor, tapped: Sequence[str]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Return (logits [R, B, T, V], outputs by module path, auxiliary losses [R] by name)."""
        lower = self._lower
        keys = dict(zip(self._dropouts, dropout_keys.unbind(), strict=True))

        def forward(
            state: dict[str, Tensor], tokens_BT: Tensor
        ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
            shared, model = Shared(self.auxiliaries), self.model
            with capture(model, tapped) as outputs:
                if state:
                    arguments = ((tokens_BT,), {"shared": shared})
                    logits_BTV = torch.func.functional_call(model, state, *arguments)
                else:
                    logits_BTV = model(tokens_BT, shared=shared)
            return logits_BTV, outputs, shared.losses(logits_BTV)

        with torch.autocast(self._device.type, dtype=lower) if lower else nullcontext():
            if self._R == 1:
                for name, key_R in keys.items():
                    self._dropouts[name].key = key_R[0]
                logits_BTV, *named = forward({}, tokens_RBT[0])
                outputs, auxiliary = ({n: x[None] for n, x in each.items()} for each in named)
                return logits_BTV[None], outputs, auxiliary
            state = dict(zip(self._shapes, self._leaves, strict=True))
            state |= {f"{name}.key": key_R for name, key_R in keys.items()}
            with SideBySide(lower):
                return torch.func.vmap(forward)(state, tokens_RBT)

    def _own_rows(self, n: int) -> slice:
        """Return the slice of an n-row batch that this process computes."""
        return slice(0, n) if self._ranks is None else self._ranks.rows(n)

    def own(self, windows: Tensor) -> Tensor:
        """Return the rows of `windows` [R, B, ...] that this process computes."""
        return windows[:, self._own_rows(windows.shape[1])]

    def update(
        self, gradients: Rows, factors_R: Tensor, is_alive_R: Tensor, inputs: Inputs
    ) -> None:
        """Perform one optimizer step with gradients scaled by `factors_R`.

        Diverged replicas, where `is_alive_R` is False, keep their weights.
        """
        is_alive_R1 = is_alive_R[:, None]
        clipped_RN = gradients.flat * factors_R[:, None]
        if clipped_RN.device.type != "cpu" or not is_alive_R.all():  # reading is free on a CPU
            clipped_RN.masked_fill_(~is_alive_R1, 0.0)
        rates_R1 = torch.where(is_alive_R1, inputs.rates[:, None], 0.0)
        self._optimizer.update(clipped_RN, rates_R1, inputs.t)

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Synchronize with the device, and copy a replica's float32 state to the host.

        Keys are `weights/<parameter>`, `<slot>/<parameter>` and `average/<parameter>`.
        """
        return {
            f"{kind}/{name}": values[replica].to("cpu", copy=True).numpy()
            for kind, rows in self._rows.items()
            for name, values in rows.items()
        }

    @torch.no_grad()
    def load(self, replica: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Load a replica's state from `arrays`, ignoring unknown names."""
        for name, values in arrays.items():
            kind, _, parameter = name.partition("/")
            if kind in self._rows:
                self._rows[kind][parameter][replica].copy_(torch.from_numpy(values))


def recompute_blocks(model: nn.Module) -> None:
    """Enable activation checkpointing for every block (Chen et al. 2016).

    Blocks store only their inputs, and recompute activations in the backward pass.
    """
    blocks: Any = model.blocks
    for block in blocks:
        block.forward = partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
        )


def losses_of(
    loss: TrainingLoss, logits_RBTV: Tensor, targets_RBT: Tensor
) -> tuple[Tensor, Tensor]:
    """Return (mean cross-entropy [R], mean training loss [R]) in nats per token."""
    logits_RBTV = logits_RBTV.float()
    objectives_R = loss(logits_RBTV, targets_RBT).flatten(1).mean(dim=1)
    if loss.is_plain:
        return objectives_R, objectives_R
    return PLAIN(logits_RBTV.detach(), targets_RBT).flatten(1).mean(dim=1), objectives_R
