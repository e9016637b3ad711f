"""Evaluation of probes on the tensors that training steps save for them.

Axes: R replicas, B batch, T time, C measured columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paribus.engine.observation import Column, Probe, StepView, has_modules
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting
from paribus.errors import ParibusError


class Kind(NamedTuple):
    """Kind of training step, defined by the tensors that it saves for probes."""

    tapped: tuple[str, ...]  # paths of the modules whose outputs are saved
    seen: bool  # whether a probe is due, so that the weights before the update are saved


class Done(NamedTuple):
    """Device tensors that a training step returns."""

    measured: Tensor  # [R, C] the trainer's own columns
    was_alive: Tensor  # [R] whether the replica was finite before the step
    windows: Tensor  # [R, B, T + 1] tokens of the step
    outputs: dict[str, Tensor]  # outputs of the tapped modules, [R, ...] each
    before: Rows  # weights before the update, or after it if no probe is due
    gradients: Rows  # gradients before clipping


class Probing:
    """Evaluator of a study's probes.

    Args:
        probes: Probes of the study. Probes whose modules are replaced by custom parts are dropped.
        setting: Setting that all replicas share.
        replicas: `Replicas` of the trainer.
        n_replicas: Number of replicas, R.
        token_classes: [V] class of each token id, on the device.
        strict: Whether to raise an error if a probe fails, as in a dry run. Otherwise NaN is
            recorded, because a failing diagnostic must not end a trial.

    Attributes:
        probes: Probes that are evaluated.
        columns: Columns of the values that `measure` returns.

    Raises ParibusError if a probe needs a module that the model does not have.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        setting: Setting,
        replicas: Any,
        n_replicas: int,
        token_classes: Tensor,
        *,
        strict: bool,
    ) -> None:
        self.probes = tuple(p for p in probes if has_modules(p, replicas.model, setting))
        slots = tuple(replicas.slots)
        self.columns: list[Column] = [c for p in self.probes for c in p.columns(setting, slots)]
        shapes = [probe.shape(setting, n_replicas, slots) for probe in self.probes]
        self._missing = [token_classes.new_full(s, math.nan, dtype=torch.float32) for s in shapes]
        self._setting, self._replicas, self._strict = setting, replicas, strict
        self._token_classes = token_classes

    def kind(self, t: int) -> Kind:
        """Return which tensors step t saves for the probes that are due."""
        due = self._due(t)
        tapped = {path for probe in due for path in probe.paths(self._setting)}
        return Kind(tuple(sorted(tapped)), seen=bool(due))

    @torch.no_grad()
    def measure(self, t: int, done: Done) -> list[Tensor]:
        """Return each probe's values at step t, [R, columns], with NaN for probes not due."""
        due, blocks = self._due(t), []
        view = self._view(t, done, due) if due else None
        for probe, missing in zip(self.probes, self._missing, strict=True):
            values = self._measure(probe, view, missing) if view and probe in due else missing
            blocks.append(values.float().reshape(len(missing), -1))
        return blocks

    def _due(self, t: int) -> list[Probe]:
        is_last = t == self._setting.iterations - 1
        return [probe for probe in self.probes if t % probe.every == 0 or is_last]

    def _view(self, t: int, done: Done, due: Sequence[Probe]) -> StepView:
        """Collect the tensors of the latest step for the probes that are due."""
        weights, updates = self._replicas.weights, Rows(done.before.flat[:, :0], {})
        if any(probe.updates for probe in due):
            updates = weights.like(weights.flat - done.before.flat)
        return StepView(
            setting=self._setting,
            t=t,
            tokens=done.windows[..., :-1].long(),
            token_classes=self._token_classes,
            outputs=done.outputs,
            weights=done.before,
            gradients=done.gradients,
            updates=updates,
            slots=self._replicas.slots,
            corrections=self._replicas.corrections(t),
        )

    def _measure(self, probe: Probe, view: StepView, missing: Tensor) -> Tensor:
        """Return a probe's values, or `missing` if the probe fails in non-strict mode."""
        try:
            values, shape = probe.measure(view), tuple(missing.shape)
            if tuple(values.shape) != shape or values.is_complex():
                raise ValueError(
                    f"expected real numbers of shape {shape} (replicas, parts, statistics), not "
                    f"{values.dtype} of shape {tuple(values.shape)}"
                )
        except ParibusError:
            raise
        except Exception as error:
            if not self._strict:
                return missing
            raise ParibusError(
                f"probe '{probe.name}' failed ({type(error).__name__}: {error}); fix the probe, or "
                f"disable it with probes.every.{probe.name} = 0",
                code="own_code",
            ) from error
        return values
