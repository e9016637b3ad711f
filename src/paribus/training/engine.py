"""The engine: R replicas of one arm, different seeds, trained in lockstep.

R = 1 is the ordinary case. The weights of all replicas are one tensor [R, N]; the model is a plain
module, mapped over the rows (`torch.func.vmap`). Replicas share no arithmetic, so what happens to
one changes no bit of another.

Axes: R replicas, N parameters, B batch, T time, V vocabulary, C measured columns, P parts and S
statistics of a probe.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.data import FIRST_DIGEST, Dataset, batch, extend_digest
from paribus.errors import ParibusError
from paribus.model import (
    Column,
    Dropout,
    Probe,
    Rows,
    StepView,
    build_model,
    capture,
    initial_parameters,
    is_there,
    role,
)
from paribus.streams import key
from paribus.study import Setting
from paribus.training.optimizer import AdamW, clip_factors, is_decayed
from paribus.training.phases import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER, PROBES
from paribus.training.schedule import learning_rate

# Measured at every step by the engine itself, with their units; probes add their own columns.
COLUMNS = {"train_loss": "nats/token", "grad_norm": "L2", "learning_rate": "1"}
NEVER = -1


@dataclass(frozen=True)
class ReplicaState:
    """All that is needed to go on with one replica, and to record it.

    Attributes:
        t: steps done.
        weights, mean, square: [N] float32, in the engine's order of parameters.
        measured: [t, C] float32: COLUMNS, then `Stack.probe_columns`; NaN where not measured.
        batch_digest: the running digest of its batches.
        diverged_at: the step at which it turned non-finite, or None.
    """

    t: int
    weights: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    measured: np.ndarray
    batch_digest: str
    diverged_at: int | None


class Stack:
    """Replicas of one setting, one per seed.

    Args:
        setting: what they are all trained with.
        seeds: one per replica; initialisation, data order and dropout follow from it.
        dataset: the tokens.
        folder: where import paths of the user's own modules start.
        device: where to train.
        probes: what else to measure.
        strict: whether a probe that fails is an error, as in a dry run, or a value that is absent:
            a diagnostic is no reason to lose a trial in the middle.

    Raises ParibusError for a probe of a module that the model does not have.
    """

    def __init__(
        self,
        setting: Setting,
        seeds: Sequence[int],
        dataset: Dataset,
        *,
        folder: Path | None = None,
        device: torch.device | str = "cpu",
        probes: Sequence[Probe] = (),
        strict: bool = True,
    ) -> None:
        self.setting = setting
        self.seeds = tuple(seeds)
        self.t = 0
        self.on_phase: Callable[[str], object] = lambda phase: None  # hears what a step begins
        self.batch_digests = [FIRST_DIGEST] * len(self.seeds)
        self._dataset = dataset
        self.device = torch.device(device)
        self._model = build_model(setting, dataset.vocab_size, folder).to(self.device).train()
        self.probes = tuple(p for p in probes if is_there(p, self._model, setting))
        of_probes = [(p, p.columns(setting), p.shape(setting, len(seeds))) for p in self.probes]
        self.probe_columns: list[Column] = [c for _, columns, _ in of_probes for c in columns]
        self._layout = [(probe, len(columns), shape) for probe, columns, shape in of_probes]
        self._strict = strict
        self._token_classes = torch.from_numpy(dataset.token_classes).to(self.device)
        self._dropouts = [
            name
            for name, module in self._model.named_modules()
            if isinstance(module, Dropout) and module.p > 0
        ]

        # Decayed parameters come first, so that weight decay is one operation on a slice; those of
        # one role lie together, so that probes take few slices.
        decay = setting.training.optimizer.decay
        named = dict(sorted(self._model.named_parameters(), key=lambda named: role(named[0])))
        self._shapes = {
            name: parameter.shape
            for wanted in (True, False)
            for name, parameter in named.items()
            if is_decayed(name, parameter, decay) == wanted
        }
        n_decayed = sum(p.numel() for n, p in named.items() if is_decayed(n, p, decay))

        drawn = [initial_parameters(self._model, setting, seed) for seed in self.seeds]
        self.initial_records = [
            {name: parameter.record for name, parameter in one.items()} for one in drawn
        ]
        rows = [np.concatenate([one[n].value.ravel() for n in self._shapes]) for one in drawn]
        self._weights = torch.from_numpy(np.stack(rows)).to(self.device).requires_grad_()
        self._adamw = AdamW(
            setting.training.optimizer,
            n_decayed,
            torch.zeros_like(self._weights, requires_grad=False),
            torch.zeros_like(self._weights, requires_grad=False),
        )
        self._alive = torch.ones(len(self.seeds), dtype=torch.bool, device=self.device)
        self._diverged_at = torch.full_like(self._alive, NEVER, dtype=torch.int64)
        self._measured: list[Tensor] = []  # [R, C] each, on the device until they are asked for

    def step(self) -> None:
        """One optimizer step of every replica that is still finite."""
        due = [probe for probe in self.probes if probe.is_due(self.t, self.setting.iterations)]
        tapped = list(dict.fromkeys(path for probe in due for path in probe.paths(self.setting)))
        self.on_phase(DATA)
        windows = self._next_windows()
        self.on_phase(FORWARD)
        losses_R, outputs = self._losses(windows[..., :-1], windows[..., 1:], tapped)
        self.on_phase(BACKWARD)
        (grads_RN,) = torch.autograd.grad(losses_R.sum(), self._weights)
        self.on_phase(PROBES)
        before_RN = self._weights.detach().clone() if due else self._weights
        self.on_phase(OPTIMIZER)
        losses_R = losses_R.detach()
        norms_R = torch.linalg.vector_norm(grads_RN, dim=1)

        was_alive = self._alive
        self._alive = was_alive & losses_R.isfinite() & norms_R.isfinite()
        stopped = was_alive & ~self._alive
        self._diverged_at = torch.where(stopped, self.t, self._diverged_at)

        training = self.setting.training
        rate = learning_rate(
            training.optimizer.learning_rate, training.schedule, self.t, self.setting.iterations
        )
        # A frozen replica has no gradient and no learning rate: its weights stay what they were.
        factors_R1 = clip_factors(norms_R, training.grad_clip)[:, None]
        clipped_RN = torch.where(self._alive[:, None], grads_RN * factors_R1, 0.0)
        rates_R = torch.where(self._alive, rate, 0.0)
        self._adamw.update(self._weights, clipped_RN, rates_R[:, None], self.t)

        self.on_phase(PROBES)
        measured_RC = torch.stack([losses_R, norms_R, torch.full_like(losses_R, rate)], dim=1)
        if self.probes:
            view = self._view(due, windows[..., :-1], outputs, before_RN, grads_RN)
            measured_RC = torch.cat([measured_RC, *self._measure(due, view)], dim=1)
        self.on_phase(OTHER)
        self._measured.append(measured_RC.masked_fill(~was_alive[:, None], math.nan))
        self.t += 1

    @property
    def last_losses(self) -> list[float]:
        """The training loss of every replica at the last step, in nats per token."""
        return self._measured[-1][:, 0].tolist() if self._measured else []

    def parameters(self, replica: int) -> dict[str, np.ndarray]:
        """The present weights of one replica by parameter name, float32."""
        rows = Rows(self._weights.detach()[replica : replica + 1], self._shapes)
        return {name: row[0].cpu().numpy().copy() for name, row in rows.items()}

    def state(self, replica: int) -> ReplicaState:
        """A copy of everything that replica number `replica` goes on from."""
        n_columns = len(COLUMNS) + len(self.probe_columns)
        measured = [block[replica] for block in self._measured]
        at = int(self._diverged_at[replica])
        return ReplicaState(
            t=self.t,
            weights=self._weights[replica].detach().cpu().numpy().copy(),
            mean=self._adamw.mean[replica].cpu().numpy().copy(),
            square=self._adamw.square[replica].cpu().numpy().copy(),
            measured=torch.stack(measured).cpu().numpy()
            if measured
            else np.zeros((0, n_columns), np.float32),
            batch_digest=self.batch_digests[replica],
            diverged_at=None if at == NEVER else at,
        )

    @torch.no_grad()
    def restore(self, states: Sequence[ReplicaState]) -> None:
        """Go on from states of one step, one per seed and in the order of the seeds."""
        steps = {state.t for state in states}
        if len(states) != len(self.seeds) or len(steps) != 1:
            raise ValueError(f"{len(self.seeds)} states of one step are needed, not {steps}")
        self.t = steps.pop()
        for r, state in enumerate(states):
            self._weights[r] = torch.from_numpy(state.weights)
            self._adamw.mean[r] = torch.from_numpy(state.mean)
            self._adamw.square[r] = torch.from_numpy(state.square)
            self._alive[r] = state.diverged_at is None
            self._diverged_at[r] = NEVER if state.diverged_at is None else state.diverged_at
        self.batch_digests = [state.batch_digest for state in states]
        measured_RtC = torch.from_numpy(np.stack([state.measured for state in states]))
        self._measured = list(measured_RtC.to(self.device).unbind(1))

    def _next_windows(self) -> Tensor:
        """[R, B, T + 1] the token windows of step t."""
        batch_size, seq_len = self.setting.training.batch_size, self.setting.data.seq_len
        windows = [
            batch(self._dataset.train, seed, self.t, batch_size, seq_len) for seed in self.seeds
        ]
        self.batch_digests = [
            extend_digest(digest, rows)
            for digest, rows in zip(self.batch_digests, windows, strict=True)
        ]
        return torch.from_numpy(np.stack(windows)).to(self.device)

    def _view(
        self,
        due: list[Probe],
        tokens: Tensor,
        outputs: dict[str, Tensor],
        before_RN: Tensor,
        grads_RN: Tensor,
    ) -> StepView:
        """What the probes that are due see of the step just made."""
        moved = any(probe.updates for probe in due)
        updates_RN = self._weights.detach() - before_RN if moved else before_RN[:, :0]
        return StepView(
            setting=self.setting,
            t=self.t,
            tokens=tokens,
            token_classes=self._token_classes,
            outputs=outputs,
            weights=Rows(before_RN, self._shapes),
            gradients=Rows(grads_RN, self._shapes),
            updates=Rows(updates_RN, self._shapes if moved else {}),
            mean=Rows(self._adamw.mean, self._shapes),
            square=Rows(self._adamw.square, self._shapes),
        )

    @torch.no_grad()
    def _measure(self, due: list[Probe], view: StepView) -> list[Tensor]:
        """[R, P S] of every probe, NaN for those that are not due."""
        R = len(self.seeds)
        blocks = []
        for probe, n_columns, shape in self._layout:
            values = None
            if probe in due:
                try:
                    values = _checked(probe.measure(view), shape)
                except Exception as error:
                    if self._strict:
                        raise ParibusError(
                            f"probe '{probe.name}' failed: {type(error).__name__}: {error}; mend "
                            f"it, or turn it off with probes.every.{probe.name} = 0"
                        ) from error
            if values is None:
                values = torch.full((R, n_columns), math.nan, device=self.device)
            blocks.append(values.to(torch.float32).reshape(R, n_columns))
        return blocks

    def _losses(
        self, inputs: Tensor, targets: Tensor, tapped: Sequence[str] = ()
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """([R] mean loss in nats per token, tapped module outputs [R, ...])."""
        R = len(self.seeds)
        pieces = self._weights.split([shape.numel() for shape in self._shapes.values()], dim=1)
        state = {
            name: piece.view(R, *shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
        state |= self._dropout_keys()
        loss_of = partial(self._loss, tuple(tapped))
        mixed = self.setting.training.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mixed):
            if R == 1:
                only = {name: value[0] for name, value in state.items()}
                loss, outputs = loss_of(only, inputs[0], targets[0])
                return loss[None], {path: output[None] for path, output in outputs.items()}
            with warnings.catch_warnings():
                # PyTorch has no batching rule for the CPU's attention kernel, and says so; its
                # fallback, one call per replica, is right.
                warnings.filterwarnings("ignore", message="There is a performance drop")
                return torch.func.vmap(loss_of)(state, inputs, targets)

    def _loss(
        self,
        tapped: tuple[str, ...],
        state: dict[str, Tensor],
        inputs_BT: Tensor,
        targets_BT: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One replica's mean loss, and the outputs of the tapped modules."""
        with capture(self._model, tapped) as outputs:
            logits_BTV = torch.func.functional_call(self._model, state, (inputs_BT,))
        loss = F.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten())
        return loss, outputs

    def _dropout_keys(self) -> dict[str, Tensor]:
        """{buffer name: [R] int64} the key of every dropout mask of step t."""
        keys = {}
        for name in self._dropouts:
            words = [key(seed, "dropout", name, self.t) % 2**63 for seed in self.seeds]
            keys[f"{name}.key"] = torch.tensor(words, dtype=torch.int64, device=self.device)
        return keys


def _checked(values: object, shape: tuple[int, ...]) -> Tensor:
    """What a probe gave, if it has the shape that it declares."""
    if not isinstance(values, Tensor) or tuple(values.shape) != shape:
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        declared = f"{shape}: R replicas, then its parts and statistics"
        raise ValueError(f"it gave {found}, and must give a tensor of shape {declared}")
    return values
