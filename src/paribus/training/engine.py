"""The engine: R replicas of one model, trained in lockstep.

They differ in their seeds, and may differ in learning rate, weight decay and initial weights. R = 1
is the ordinary case. The weights of all replicas are one tensor [R, N]; the model is a plain
module, mapped over the rows (`torch.func.vmap`). Replicas share no arithmetic, so what happens to
one changes no bit of another.

The loop asks nothing of the device that would make the host wait: batches arrive ahead (`Feed`),
what is measured leaves in blocks (`Measured`), and on a GPU a step is one launch (`Graphs`).

Axes: R replicas, N parameters, B batch, T time, V vocabulary, C measured columns, P parts and S
statistics of a probe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.data import Dataset
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
    parameter_uses,
    role,
)
from paribus.study import Setting
from paribus.training.feed import Feed, Inputs
from paribus.training.graphs import Graphs, cuda_recorder
from paribus.training.measured import Measured
from paribus.training.optimizer import AdamW, clip_factors, is_decayed
from paribus.training.phases import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER, PROBES
from paribus.training.side_by_side import SideBySide

# Measured at every step by the engine itself, with their units; probes add their own columns.
COLUMNS = {"train_loss": "nats/token", "grad_norm": "L2", "learning_rate": "1"}
NEVER = -1
WEIGHTS, MEASURED = "weights", "measured"  # names in `ReplicaState.arrays`


@dataclass(frozen=True)
class ReplicaState:
    """All that is needed to go on with one replica, and to record it.

    Attributes:
        t: steps done.
        arrays: float32, by name: `weights/<parameter>`, what the optimizer keeps for it such as
            `exp_avg/<parameter>`, and `measured` [t, C]: COLUMNS, then `Stack.probe_columns`; NaN
            where not measured.
        batch_digest: the running digest of its batches.
        diverged_at: the step at which it turned non-finite, or None.
    """

    t: int
    arrays: Mapping[str, np.ndarray]
    batch_digest: str
    diverged_at: int | None

    @property
    def measured(self) -> np.ndarray:
        """[t, C] of `arrays`."""
        return self.arrays[MEASURED]


class _Kind(NamedTuple):
    """What a step gives besides doing its work.

    Attributes:
        tapped: paths of the modules whose outputs are wanted.
        seen: whether a probe looks at it, and weights and gradients have to be kept.
    """

    tapped: tuple[str, ...]
    seen: bool


class _Done(NamedTuple):
    """What a step leaves on the device.

    Attributes:
        measured: [R, C] the engine's own columns.
        was_alive: [R] who was finite before the step.
        windows: [R, B, T + 1] int64, the tokens it read.
        outputs: of the tapped modules, [R, ...] each.
        before: [R, N] the weights before the update; those after it where nobody looks.
        gradients: [R, N] before clipping.
    """

    measured: Tensor
    was_alive: Tensor
    windows: Tensor
    outputs: dict[str, Tensor]
    before: Tensor
    gradients: Tensor


class Stack:
    """Replicas side by side, one per seed.

    Args:
        setting: what they are all trained with; or one setting per replica, alike in all that
            `Setting.common` says.
        seeds: one per replica; initialisation, data order and dropout follow from it.
        dataset: the tokens.
        folder: where import paths of the user's own modules start.
        device: where to train.
        probes: what else to measure.
        strict: whether a probe that fails is an error, as in a dry run, or a value that is absent:
            a diagnostic is no reason to lose a trial in the middle.
        graphs: whether a GPU's steps are recorded, and replayed as one launch each.

    Raises ParibusError for a probe of a module that the model does not have, ValueError for
    settings that cannot share a stack or leave their precision open.
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
    ) -> None:
        self.seeds = tuple(seeds)
        alike = isinstance(setting, Setting)
        self.settings = (setting,) * len(self.seeds) if alike else tuple(setting)
        if len(self.settings) != len(self.seeds) or any(
            one.common != self.settings[0].common for one in self.settings
        ):
            raise ValueError(
                "a stack needs one setting per seed, alike in what they have in common"
            )
        setting = self.setting = self.settings[0]
        if setting.training.precision == "auto":
            raise ValueError("precision 'auto' is settled before training: study.with_precision")
        self.t = 0
        # Hears which phase a step begins; a GPU's steps are then not replayed as one.
        self.on_phase: Callable[[str], object] | None = None
        self.device = torch.device(device)
        on_gpu = self.device.type == "cuda"
        models = {
            one: build_model(one, dataset.vocab_size, folder).to(self.device).train()
            for one in dict.fromkeys(self.settings)
        }
        self._model = models[setting]
        self.probes = tuple(p for p in probes if is_there(p, self._model, setting))
        of_probes = [(p, p.columns(setting), p.shape(setting, len(seeds))) for p in self.probes]
        self.probe_columns: list[Column] = [c for _, columns, _ in of_probes for c in columns]
        self._layout = [(probe, len(columns), shape) for probe, columns, shape in of_probes]
        self._strict = strict
        self._lower = torch.bfloat16 if setting.training.precision == "bfloat16" else None
        self._token_classes = torch.from_numpy(dataset.token_classes).to(self.device)
        self._dropouts = [
            name
            for name, module in self._model.named_modules()
            if isinstance(module, Dropout) and module.p > 0
        ]
        # Constants that follow from what replicas may differ in, such as the scale of an init.
        self._buffers = {
            name: torch.stack([models[one].get_buffer(name) for one in self.settings])
            for name, _ in (self._model.named_buffers() if len(models) > 1 else ())
        }

        # Decayed parameters come first, so that weight decay is one operation on a slice; those of
        # one role lie together, so that probes take few slices.
        decay = setting.training.optimizer.decay
        named = dict(sorted(self._model.named_parameters(), key=lambda named: role(named[0])))
        uses = parameter_uses(self._model)
        self._shapes = {
            name: parameter.shape
            for wanted in (True, False)
            for name, parameter in named.items()
            if is_decayed(uses[name], decay) == wanted
        }
        n_decayed = sum(p.numel() for n, p in named.items() if is_decayed(uses[n], decay))

        drawn = [
            initial_parameters(self._model, one, seed)
            for one, seed in zip(self.settings, self.seeds, strict=True)
        ]
        self.initial_records = [
            {name: parameter.record for name, parameter in one.items()} for one in drawn
        ]
        rows = [np.concatenate([one[n].value.ravel() for n in self._shapes]) for one in drawn]
        self._weights = torch.from_numpy(np.stack(rows)).to(self.device).requires_grad_()
        self._adamw = AdamW(
            setting.training.optimizer,
            n_decayed,
            self._column([s.training.optimizer.weight_decay for s in self.settings]),
            torch.zeros_like(self._weights, requires_grad=False),
            torch.zeros_like(self._weights, requires_grad=False),
        )
        self._alive = torch.ones(len(self.seeds), dtype=torch.bool, device=self.device)
        self._diverged_at = torch.full_like(self._alive, NEVER, dtype=torch.int64)
        self._measured = Measured(len(COLUMNS) + len(self.probe_columns), len(self.seeds))
        self._feed = Feed(self.settings, self.seeds, dataset.train, self._dropouts, self.device)
        self._graphs = Graphs(cuda_recorder() if on_gpu and graphs else None)

    def step(self) -> None:
        """One optimizer step of every replica that is still finite."""
        due = [probe for probe in self.probes if probe.is_due(self.t, self.setting.iterations)]
        tapped = {path for probe in due for path in probe.paths(self.setting)}
        kind = _Kind(tuple(sorted(tapped)), seen=bool(due))
        self._begin(DATA)
        inputs = self._feed.at(self.t)
        if self.on_phase:
            done = self._advance(inputs, kind)
        else:
            done = self._graphs(self._advance, inputs, kind)
        self._begin(PROBES)
        measured_RC = done.measured
        if self.probes:
            measured_RC = torch.cat(
                [measured_RC, *self._measure(due, self._view(due, done))], dim=1
            )
        self._begin(OTHER)
        self._measured.append(measured_RC.masked_fill(~done.was_alive[:, None], math.nan))
        self.t += 1

    def _advance(self, inputs: Inputs, kind: _Kind) -> _Done:
        """The step itself, for the host blindly: no value of a tensor decides what is launched."""
        self._begin(FORWARD)
        windows = inputs.windows.long()
        losses_R, outputs = self._losses(inputs, windows, kind.tapped)
        self._begin(BACKWARD)
        (grads_RN,) = torch.autograd.grad(losses_R.sum(), self._weights)
        self._begin(PROBES)
        weights_RN = self._weights.detach()
        before_RN = weights_RN.clone() if kind.seen else weights_RN
        self._begin(OPTIMIZER)
        losses_R = losses_R.detach()
        norms_R = torch.linalg.vector_norm(grads_RN, dim=1)

        was_alive = self._alive.clone()
        self._alive &= losses_R.isfinite() & norms_R.isfinite()
        stopped = was_alive & ~self._alive
        self._diverged_at.copy_(torch.where(stopped, inputs.t, self._diverged_at))

        # A frozen replica has no gradient and no learning rate: its weights stay what they were.
        factors_R1 = clip_factors(norms_R, self.setting.training.grad_clip)[:, None]
        clipped_RN = torch.where(self._alive[:, None], grads_RN * factors_R1, 0.0)
        rates_R1 = torch.where(self._alive, inputs.rates, 0.0)[:, None]
        self._adamw.update(self._weights, clipped_RN, rates_R1, inputs.corrections)
        measured_RC = torch.stack([losses_R, norms_R, inputs.rates], dim=1)
        return _Done(measured_RC, was_alive, windows, outputs, before_RN, grads_RN)

    def logits(
        self, tokens_RBT: Tensor, tapped: tuple[str, ...] = (), *, mixed: bool = True
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What the coming step would compute of these tokens: nothing is learned from them.

        Args:
            tokens_RBT: [R, B, T] int64, on the stack's device.
            tapped: paths of the modules whose outputs are wanted.
            mixed: False computes in float32 whatever the setting's precision.

        Returns (logits [R, B, T, V], {path: [R, ...]}).
        """
        keys = self._feed.at(self.t).dropout_keys
        return self._logits(keys, tokens_RBT, tapped, self._lower if mixed else None)

    @torch.no_grad()
    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Give every replica these weights, by parameter name."""
        row = np.concatenate([weights[name].ravel() for name in self._shapes])
        self._weights[:] = torch.from_numpy(row)

    @property
    def last_losses(self) -> list[float]:
        """The training loss of every replica, in nats per token: at the last step, or on a GPU at
        the last one whose numbers have arrived."""
        return self._measured.newest()[:, 0].tolist() if self.t else []

    @property
    def batch_digests(self) -> list[str]:
        """The running digest of every replica's batches so far."""
        return self._feed.digests(self.t)

    def parameters(self, replica: int) -> dict[str, np.ndarray]:
        """The present weights of one replica by parameter name, float32."""
        rows = Rows(self._weights.detach()[replica : replica + 1], self._shapes)
        return {name: values.cpu().numpy().copy() for name, values in rows.first.items()}

    def state(self, replica: int) -> ReplicaState:
        """A copy of everything that replica number `replica` goes on from."""
        at = int(self._diverged_at[replica])
        named = {
            f"{kind}/{name}": values.cpu().numpy().copy()
            for kind, rows in self._named.items()
            for name, values in Rows(rows[replica : replica + 1], self._shapes).first.items()
        }
        return ReplicaState(
            t=self.t,
            arrays=named | {MEASURED: self._measured.all()[:, replica].copy()},
            batch_digest=self.batch_digests[replica],
            diverged_at=None if at == NEVER else at,
        )

    @torch.no_grad()
    def restore(self, states: Sequence[ReplicaState]) -> None:
        """Go on from states of one step, one per seed and in the order of the seeds.

        Raises ParibusError, and changes nothing, where a state has other arrays than this stack.
        """
        steps = {state.t for state in states}
        if len(states) != len(self.seeds) or len(steps) != 1:
            raise ValueError(f"{len(self.seeds)} states of one step are needed, not {steps}")
        n_columns = len(COLUMNS) + len(self.probe_columns)
        expected = {f"{kind}/{name}": s for kind in self._named for name, s in self._shapes.items()}
        for state in states:
            _require_shapes(state.arrays, expected | {MEASURED: (state.t, n_columns)})
        self.t = steps.pop()
        for r, state in enumerate(states):
            for kind, rows in self._named.items():
                for name, place in Rows(rows[r : r + 1], self._shapes).first.items():
                    place.copy_(torch.from_numpy(state.arrays[f"{kind}/{name}"]))
            self._alive[r] = state.diverged_at is None
            self._diverged_at[r] = NEVER if state.diverged_at is None else state.diverged_at
        self._feed.restart(self.t, [state.batch_digest for state in states])
        self._measured.replace(np.stack([state.measured for state in states], axis=1))

    @property
    def _named(self) -> dict[str, Tensor]:
        """[R, N] each: the weights, and what the optimizer keeps for them."""
        adamw = self._adamw
        return {
            WEIGHTS: self._weights.detach(),
            "exp_avg": adamw.mean,
            "exp_avg_sq": adamw.square,
        }

    def _begin(self, phase: str) -> None:
        if self.on_phase:
            self.on_phase(phase)

    def _view(self, due: list[Probe], done: _Done) -> StepView:
        """What the probes that are due see of the step just made."""
        moved = any(probe.updates for probe in due)
        none_RN = done.before[:, :0]
        updates_RN = self._weights.detach() - done.before if moved else none_RN
        return StepView(
            setting=self.setting,
            t=self.t,
            tokens=done.windows[..., :-1],
            token_classes=self._token_classes,
            outputs=done.outputs,
            weights=Rows(done.before, self._shapes),
            gradients=Rows(done.gradients, self._shapes),
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
        self, inputs: Inputs, windows: Tensor, tapped: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """([R] mean loss in nats per token, tapped module outputs [R, ...])."""
        # A copy: of a view, a module could find the targets in the memory around it.
        inputs_RBT = windows[..., :-1].clone(memory_format=torch.contiguous_format)
        logits_RBTV, outputs = self._logits(inputs.dropout_keys, inputs_RBT, tapped, self._lower)
        losses = F.cross_entropy(
            logits_RBTV.float().flatten(0, 2), windows[..., 1:].flatten(), reduction="none"
        )
        return losses.view(len(self.seeds), -1).mean(dim=1), outputs

    def _logits(
        self,
        dropout_keys: Tensor,
        tokens_RBT: Tensor,
        tapped: tuple[str, ...],
        lower: torch.dtype | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(logits [R, B, T, V], tapped module outputs [R, ...]), as every step computes them."""
        R = len(self.seeds)
        pieces = self._weights.split([shape.numel() for shape in self._shapes.values()], dim=1)
        state = {
            name: piece.view(R, *shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
        state |= self._buffers
        keys = dropout_keys.unbind()
        state |= {f"{name}.key": key for name, key in zip(self._dropouts, keys, strict=True)}
        with torch.autocast(self.device.type, dtype=lower) if lower else nullcontext():
            if R == 1:
                only = {name: value[0] for name, value in state.items()}
                logits_BTV, outputs = self._forward(tapped, only, tokens_RBT[0])
                return logits_BTV[None], {path: output[None] for path, output in outputs.items()}
            with SideBySide(lower):
                forward = torch.func.vmap(partial(self._forward, tapped))
                return forward(state, tokens_RBT)

    def _forward(
        self, tapped: tuple[str, ...], state: dict[str, Tensor], tokens_BT: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One replica's logits [B, T, V], and the outputs of the tapped modules."""
        with capture(self._model, tapped) as outputs:
            logits_BTV = torch.func.functional_call(self._model, state, (tokens_BT,))
        return logits_BTV, outputs

    def _column(self, values: list[float]) -> Tensor:
        """[R, 1] float32 on the device."""
        return torch.tensor(values, dtype=torch.float32, device=self.device)[:, None]


def _require_shapes(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, Sequence[int]]
) -> None:
    """Raise ParibusError where `arrays` have other names or shapes than what is trained."""
    words = None
    for name in sorted(expected.keys() | arrays.keys()):
        if name not in arrays:
            words = f"has no '{name}'"
        elif name not in expected:
            words = f"has '{name}', which is not trained here"
        elif arrays[name].shape != tuple(expected[name]):
            words = f"has '{name}' as {arrays[name].shape}; here it is {tuple(expected[name])}"
        if words:
            raise ParibusError(
                f"the checkpoint is of another model, optimizer or probes: it {words}; go on with "
                "what it was written by, or delete it and train the trial again"
            )


def _checked(values: object, shape: tuple[int, ...]) -> Tensor:
    """What a probe gave, if it has the shape that it declares."""
    if not isinstance(values, Tensor) or tuple(values.shape) != shape:
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        declared = f"{shape}: R replicas, then its parts and statistics"
        raise ValueError(f"it gave {found}, and must give a tensor of shape {declared}")
    return values
