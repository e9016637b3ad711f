"""Replicas of one model, which a trainer trains together.

Axes: R replicas, N parameters of one replica, B batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paribus.engine.model import Dropout, build_model, initial_parameters
from paribus.engine.model.shared import Seen, Shared
from paribus.engine.model.side_by_side import SideBySide, WithKernels, stacked_buffers
from paribus.engine.observation import capture
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting, rows_of
from paribus.engine.training.averages import Averaging, find_average
from paribus.engine.training.groups import StackedOptimizer, optimizer_record, parameter_groups
from paribus.engine.training.losses import TrainingLoss, find_loss
from paribus.engine.training.prefetch import Inputs
from paribus.engine.training.schedules import scheduled_columns
from paribus.engine.training.state import WEIGHTS
from paribus.errors import ParibusError, nearest

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks

LOWER = {"bfloat16": torch.bfloat16, "float16": torch.float16}  # dtypes of autocast by precision


class ForwardBackward(NamedTuple):
    """Results of a forward and a backward pass over a batch.

    Attributes:
        losses: [R] mean cross-entropy in nats per token.
        objectives: [R] the mean of the training loss, which the gradient is of.
        gradients: {parameter name: [R, ...]} before clipping.
        outputs: of the tapped modules, [R, B, ...] each.
        auxiliaries: [A, R] auxiliary losses, before they are weighed.
    """

    losses: Tensor
    objectives: Tensor
    gradients: Rows
    outputs: dict[str, Tensor]
    auxiliaries: Tensor | tuple[()] = ()


class Replicas:
    """R replicas of one model, side by side on one device: their weights are one tensor [R, N].

    They differ in seed and perhaps in learning rate, weight decay and initial weights, and share no
    arithmetic. The model is a plain module, mapped over the rows (`torch.func.vmap`); R = 1 is the
    ordinary case. Only `arrays` and `load` read a tensor's values on the host.

    Args:
        settings: one per replica, alike in all that `Setting.common` says.
        folder: where import paths of the user's own parts start.

    Attributes:
        model: one of them, for its structure; its weights mean nothing.
        initial_records: of each replica, its initial parameters as they are recorded.
        shapes: of `arrays`, by name.
        slots: {name of what the optimizer keeps: {parameter name: [R, ...]}}.
        optimizer_record: which optimizer has which parameters, with its options.
        loss: of the study.
        auxiliaries: names of the auxiliary losses that parts of the model add.
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
        setting, self._R = settings[0], len(seeds)
        self._device, self._ranks = device, ranks
        models = {
            one: build_model(one, vocab_size, folder).to(device).train()
            for one in dict.fromkeys(settings)
        }
        self.model = models[setting]
        self._buffers = stacked_buffers([models[one] for one in settings])
        self.loss = find_loss(setting.training.loss, folder)
        self.auxiliaries = self.model.auxiliaries
        require_auxiliaries(setting, self.auxiliaries)
        self._is_seen = bool(self.auxiliaries) or self.loss.takes_shared
        self._auxiliary_weights = setting.training.loss.auxiliary
        largest = setting.training.largest_batch
        rows = math.ceil(largest / devices) if ranks is None else rows_of(setting, ranks.size)
        self._micro_batch = min(setting.training.micro_batch or rows, rows)
        self._recomputes = checkpointing
        if devices > 1 and self._is_seen:
            raise ParibusError(
                "auxiliary losses see all rows of a batch, and each of resources.devices_per_trial "
                f"= {devices} devices has some of them; remove the key"
            )
        if checkpointing and self.model.shares:
            raise ParibusError(
                "resources.checkpoint_activations calls blocks twice, and parts that take `shared` "
                "are called once; remove the key"
            )
        if checkpointing:
            recompute_blocks(self.model)
        self._lower = LOWER.get(setting.training.precision)

        groups = parameter_groups(settings, self.model, folder)
        self._groups = groups
        self._dropouts = {
            name: module
            for name, module in self.model.named_modules()
            if isinstance(module, Dropout) and module.p > 0
        }
        self.dropouts = tuple(self._dropouts)
        self.optimizer_record = optimizer_record(groups, self.model)
        parameters = dict(self.model.named_parameters())
        # Those that are updated together lie together.
        self._shapes = {name: parameters[name].shape for group in groups for name in group.names}
        drawn = [
            initial_parameters(self.model, one, seed)
            for one, seed in zip(settings, seeds, strict=True)
        ]
        self.initial_records = [
            {name: parameter.record for name, parameter in one.items()} for one in drawn
        ]
        values = [np.concatenate([one[n].value.ravel() for n in self._shapes]) for one in drawn]
        self._flat = torch.from_numpy(np.stack(values)).to(device)
        self._rows = Rows(self._flat, self._shapes).like
        self._leaves = self._found_leaves(parameters)
        self._optimizer = StackedOptimizer(
            groups, self.weights, scheduled_columns(setting.training)
        )
        self.slots = self._optimizer.slots
        averages = find_average(setting.training.average, folder)
        # Parts that ship ask for kernels themselves, and would pay for being listened to.
        listens = self._R == 1 and setting.model.modules.named and device.type == "cpu"
        self._answers = WithKernels if listens else nullcontext
        self._averaging = averages and Averaging(averages, setting.iterations, self.weights)
        self.shapes = {
            f"{kind}/{name}": tuple(values.shape[1:])
            for kind, rows in self._kinds.items()
            for name, values in rows.items()
        }

    def corrections(self, t: int) -> dict[str, dict[str, float]]:
        """Return {slot: {parameter name: what the optimizer divides it by at step t}}.

        As if no step before t had been skipped.
        """
        found = {slot: dict[str, float]() for one in self._groups for slot in one.optimizer.slots}
        for group in self._groups:
            for slot, value in group.optimizer.corrections(group.options, t).items():
                found[slot] |= dict.fromkeys(group.names, value)
        return found

    def _set_first(self, first: int) -> None:
        """Tell dropout how many sequences of the batch came before."""
        for dropout in self._dropouts.values():
            dropout.first = first

    def _found_leaves(self, parameters: Mapping[str, nn.Parameter]) -> list[Tensor]:
        """Return what a pass differentiates by: views of the rows, each a leaf, so that no gradient
        of one parameter is padded to a whole row. A single replica is the model itself."""
        if self._R > 1:
            return [one.detach().requires_grad_() for one in self.weights.values()]
        for name, row in self.weights.items():
            parameters[name].data = row[0]
        return [parameters[name] for name in self._shapes]

    @property
    def weights(self) -> Rows:
        """The rows as they are now, by parameter name; views, which `update` writes to."""
        return self._rows(self._flat)

    def evaluated(self, done: int) -> Rows:
        """Return the weights that are evaluated, kept and exported after so many steps: those that
        are trained, what their optimizer makes of them, or their average."""
        weights = self._optimizer.evaluated()
        return self._averaging.given(done, weights) if self._averaging else weights

    def afterwards(self, t: int) -> None:
        """Do what optimizers and the average do on the host after step t."""
        self._optimizer.afterwards(t)
        if self._averaging:
            self._averaging.take(t + 1, self._optimizer.evaluated())

    @property
    def _kinds(self) -> dict[str, Rows]:
        kept = self._averaging.kept if self._averaging else {}
        return {WEIGHTS: self.weights, **self.slots, **kept}

    def forward_backward(
        self,
        inputs: Inputs,
        tapped: Sequence[str],
        scales_R: Tensor | None = None,
    ) -> ForwardBackward:
        """Return loss and gradient of a batch, and outputs of the modules at the `tapped` paths.

        In parts of `micro_batch` sequences, whose gradients are added. The backward pass is of the
        objectives times `scales_R`, and gradients are divided by them. Over several devices, loss
        and gradient are of the whole batch, and outputs of this rank's rows.
        """
        rows = self._own_rows(inputs.windows.shape[1])
        pieces = inputs.windows[:, rows].long().split(self._micro_batch, dim=1)
        losses, objectives, outputs, auxiliaries, grads_RN = [], [], [], [], None
        for number, windows in enumerate(pieces):
            self._set_first(rows.start + number * self._micro_batch)
            with self._kept_for_recomputing(inputs.dropout_keys, tapped):
                tokens_RBT = windows[..., :-1].contiguous()
                logits_RBTV, tapped_outputs, seen = self._read(
                    inputs.dropout_keys, tokens_RBT, tapped
                )
                losses_R, objectives_R = losses_of(self.loss, logits_RBTV, windows[..., 1:], seen)
                if seen is not None and self.auxiliaries:
                    objectives_R = objectives_R + weighed(seen, self._auxiliary_weights)
                    auxiliaries.append(torch.stack(list(seen.auxiliary.values())).detach())
                scaled_R = objectives_R if scales_R is None else objectives_R * scales_R
                more = torch.autograd.grad(
                    scaled_R.sum(), self._leaves, allow_unused=True, materialize_grads=True
                )
                more_RN = torch.cat([grad.reshape(self._R, -1) for grad in more], dim=1)
                grads_RN = more_RN if grads_RN is None else grads_RN.add_(more_RN)
            losses.append(losses_R.detach())
            objectives.append(objectives_R.detach())
            outputs.append(tapped_outputs)
        assert grads_RN is not None
        self._set_first(0)
        if len(pieces) > 1:  # all of one size, so that the batch's mean is the mean of theirs
            grads_RN.div_(len(pieces))
        if scales_R is not None:
            grads_RN.mul_(scales_R.double().reciprocal().float()[:, None])
        losses_R, objectives_R = mean_of(losses), mean_of(objectives)
        if self._ranks is not None:
            losses_R, objectives_R = losses_R.clone(), objectives_R.clone()
            self._ranks.average(grads_RN, losses_R, objectives_R)
        return ForwardBackward(
            losses_R,
            objectives_R,
            self._rows(grads_RN),
            {path: _together([part[path] for part in outputs]) for path in outputs[0]},
            mean_of(auxiliaries) if auxiliaries else (),
        )

    def logits(
        self,
        dropout_keys: Tensor,
        tokens_RBT: Tensor,
        tapped: Sequence[str] = (),
        *,
        mixed: bool = True,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (logits [R, B, T, V], tapped outputs) as a training step computes them.

        mixed: False computes in float32 whatever the setting's precision.
        """
        return self._read(dropout_keys, tokens_RBT, tapped, mixed=mixed)[:2]

    def _read(
        self, dropout_keys: Tensor, tokens_RBT: Tensor, tapped: Sequence[str], *, mixed: bool = True
    ) -> tuple[Tensor, dict[str, Tensor], Seen | None]:
        """Return the same, and what a loss sees besides, where there is one who looks."""
        keys = dict(zip(self.dropouts, dropout_keys.unbind(), strict=True))
        lower = self._lower if mixed else None
        with torch.autocast(self._device.type, dtype=lower) if lower else nullcontext():
            if self._R == 1:
                with self._answers(), self._keyed(keys), capture(self.model, tapped) as outputs:
                    logits_BTV, seen = self._passed(self.model, tokens_RBT[0])
                first = {path: output[None] for path, output in outputs.items()}
                return logits_BTV[None], first, seen and _of_one(seen)
            state = dict(zip(self._shapes, self._leaves, strict=True)) | self._buffers
            state |= {f"{name}.key": key_R for name, key_R in keys.items()}
            with SideBySide(lower):
                forward = torch.func.vmap(partial(self._forward, tapped))
                logits_RBTV, outputs, seen = forward(state, tokens_RBT)
                return logits_RBTV, outputs, seen[0] if seen else None

    def _own_rows(self, n: int) -> slice:
        """Return which of a batch's `n` rows are computed here."""
        return slice(0, n) if self._ranks is None else self._ranks.rows(n)

    def own(self, windows: Tensor) -> Tensor:
        """Return the rows of [R, B, ...] that are computed here."""
        return windows[:, self._own_rows(windows.shape[1])]

    def norms(self, gradients: Rows) -> Tensor:
        """Return [R], the L2 norm of each row."""
        return torch.linalg.vector_norm(gradients.flat, dim=1)

    def update(
        self,
        gradients: Rows,
        factors_R: Tensor,
        moves_R: Tensor,
        rates_R: Tensor,
        scheduled_SR: Tensor,
        t: Tensor,
    ) -> None:
        """Make one step of the optimizer, with gradients times `factors_R`, where a replica moves.

        t is the step, [], and who does not move has diverged: its weights stay. Or it is how many
        steps each has made, [R]: then one that does not move may go on, and its slots stay too.
        """
        moves_R1 = moves_R[:, None]
        clipped_RN = gradients.flat * factors_R[:, None]
        if clipped_RN.device.type != "cpu" or not moves_R.all():  # a host's values are at hand
            clipped_RN.masked_fill_(~moves_R1, 0.0)
        rates_R1 = torch.where(moves_R1, rates_R[:, None], 0.0)
        scheduled_SR1 = torch.where(moves_R1, scheduled_SR[..., None], 0.0)
        if t.ndim == 0:
            self._optimizer.update(clipped_RN, rates_R1, t, scheduled_SR1)
            return
        before = [(rows.flat, rows.flat.clone()) for rows in self.slots.values()]
        self._optimizer.update(clipped_RN, rates_R1, t[:, None], scheduled_SR1)
        for now_RN, before_RN in before:
            now_RN.copy_(torch.where(moves_R1, now_RN, before_RN))

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Copy all that a replica goes on from, float32: `weights/<parameter>`, and of its
        optimizer and average `<slot>/<parameter>`, `average-0/<parameter>`; waits for the
        device."""
        return {
            f"{kind}/{name}": _copied(values[replica])
            for kind, rows in self._kinds.items()
            for name, values in rows.items()
        }

    @torch.no_grad()
    def load(self, replica: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Give a replica all or some of what `arrays` gave; no other changes."""
        for name, values in arrays.items():
            kind, _, parameter = name.partition("/")
            self._kinds[kind][parameter][replica].copy_(torch.from_numpy(values))

    @contextmanager
    def _kept_for_recomputing(self, dropout_keys: Tensor, tapped: Sequence[str]) -> Iterator[None]:
        """Keep what a forward pass depends on until the backward pass has recomputed its blocks."""
        if not self._recomputes:
            yield
            return
        keys = dict(zip(self.dropouts, dropout_keys.unbind(), strict=True))
        with self._answers(), self._keyed(keys), capture(self.model, tapped):
            yield

    @contextmanager
    def _keyed(self, keys: Mapping[str, Tensor]) -> Iterator[None]:
        """Let dropout of the only replica draw from its keys within: no buffer is left changed."""
        before = {name: self._dropouts[name].key for name in keys}
        for name, key_R in keys.items():
            self._dropouts[name].key = key_R[0]
        try:
            yield
        finally:
            for name, key in before.items():
                self._dropouts[name].key = key

    def _forward(
        self, tapped: Sequence[str], state: dict[str, Tensor], tokens_BT: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], list[Seen]]:
        """Return one replica's logits [B, T, V], the outputs of the tapped modules, and what a loss
        sees, if one looks."""
        model = partial(torch.func.functional_call, self.model, state)
        with capture(self.model, tapped) as outputs:
            logits_BTV, seen = self._passed(lambda *a, **k: model(a, k), tokens_BT)
        return logits_BTV, outputs, [] if seen is None else [seen]

    def _passed(
        self, model: Callable[..., Tensor], tokens_BT: Tensor
    ) -> tuple[Tensor, Seen | None]:
        if not self._is_seen:
            return model(tokens_BT), None
        shared = Shared(self.auxiliaries)
        logits_BTV = model(tokens_BT, shared=shared)
        return logits_BTV, shared.seen()


def recompute_blocks(model: nn.Module) -> None:
    """Let blocks keep their inputs alone, and compute the rest again in the backward pass (Chen et
    al. 2016)."""
    blocks: Any = model.blocks
    for block in blocks:
        again = {"use_reentrant": False, "preserve_rng_state": False}
        block.forward = partial(checkpoint, block.forward, **again)


def require_auxiliaries(setting: Setting, names: Sequence[str]) -> None:
    """Raise ParibusError where the study weighs an auxiliary loss that no part adds."""
    for name in setting.training.loss.auxiliary:
        if name not in names:
            raise ParibusError(
                f"training.loss.auxiliary.{name}: no part of the model adds it: "
                f"{nearest(name, names)}"
            )


def weighed(seen: Seen, weights: Mapping[str, float]) -> Tensor:
    """Return [R], the sum of auxiliary losses as a study weighs them."""
    return torch.stack([weights.get(name, 1.0) * x for name, x in seen.auxiliary.items()]).sum(0)


def _of_one(seen: Seen) -> Seen:
    """Return what a loss sees of one replica, with the axis R."""
    parts = ({name: x[None] for name, x in of.items()} for of in seen[1:])
    return Seen(seen.hidden[None], *parts)


def losses_of(
    loss: TrainingLoss, logits_RBTV: Tensor, targets_RBT: Tensor, seen: Seen | None = None
) -> tuple[Tensor, Tensor]:
    """Return ([R] mean cross-entropy, [R] mean of the training loss)."""
    logits_RBTV = logits_RBTV.float()
    if loss.is_plain:
        losses_R = _cross_entropy(logits_RBTV, targets_RBT)
        return losses_R, losses_R
    with torch.no_grad():
        losses_R = _cross_entropy(logits_RBTV, targets_RBT)
    return losses_R, loss(logits_RBTV, targets_RBT, seen).flatten(1).mean(dim=1)


def _cross_entropy(logits_RBTV: Tensor, targets_RBT: Tensor) -> Tensor:
    """Return [R], the mean over tokens."""
    losses = F.cross_entropy(logits_RBTV.flatten(0, 2), targets_RBT.flatten(), reduction="none")
    return losses.view(len(logits_RBTV), -1).mean(dim=1)


def _copied(values: Tensor) -> np.ndarray:
    """Copy to the host; what a device gives is a copy already."""
    host = values.cpu().numpy()
    return host.copy() if values.device.type == "cpu" else host


def mean_of(parts_R: Sequence[Tensor]) -> Tensor:
    """Return [R] the mean over parts of a batch, which are of one size."""
    return parts_R[0] if len(parts_R) == 1 else torch.stack(tuple(parts_R)).mean(dim=0)


def _together(parts_RB: Sequence[Tensor]) -> Tensor:
    """Join what a module gave for parts of a batch."""
    return parts_RB[0] if len(parts_RB) == 1 else torch.cat(tuple(parts_RB), dim=1)
