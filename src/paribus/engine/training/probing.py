"""Probes of a stack: what a step keeps for those that are due, and what they measure.

Axes: R replicas, B batch, T time, C measured columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paribus.engine.observation import Column, Probe, StepView, is_there
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting
from paribus.errors import ParibusError


class Kind(NamedTuple):
    """Static variant of a step: which outputs and copies it keeps.

    Attributes:
        tapped: paths of the modules whose outputs are wanted.
        seen: whether a probe looks at it, and the weights before it have to be kept.
    """

    tapped: tuple[str, ...]
    seen: bool


class Done(NamedTuple):
    """Results of a step, on the device.

    Attributes:
        measured: [R, C] the trainer's own columns.
        was_alive: [R] who was finite before the step.
        windows: [R, B, T + 1] the tokens it read.
        outputs: of the tapped modules, [R, ...] each.
        before: the weights before the update; those after it where nobody looks.
        gradients: before clipping.
    """

    measured: Tensor
    was_alive: Tensor
    windows: Tensor
    outputs: dict[str, Tensor]
    before: Rows
    gradients: Rows


class Probing:
    """Probes of a stack: those of `probes` whose modules the model has.

    Args:
        setting, replicas, n_replicas: of the trainer.
        token_classes: [V] the class of every token, on the device.
        strict: whether a probe that fails is an error, as in a dry run, or a value that is absent:
            a diagnostic is no reason to lose a trial in the middle.

    Attributes:
        probes: those that the model has the modules of.
        columns: every number that they give, in the order of `measure`.

    Raises ParibusError for a probe of a module that the model does not have.
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
        self.probes = tuple(p for p in probes if is_there(p, replicas.model, setting))
        slots = tuple(replicas.slots)
        self.columns: list[Column] = [c for p in self.probes for c in p.columns(setting, slots)]
        self._shapes = [probe.shape(setting, n_replicas, slots) for probe in self.probes]
        self._setting, self._replicas, self._strict = setting, replicas, strict
        self._token_classes = token_classes

    def kind(self, t: int) -> Kind:
        """Return what step t has to keep for the probes that are due."""
        due = self._due(t)
        tapped = {path for probe in due for path in probe.paths(self._setting)}
        return Kind(tuple(sorted(tapped)), seen=bool(due))

    @torch.no_grad()
    def measure(self, t: int, done: Done) -> list[Tensor]:
        """Return the columns of every probe at step t, [R, its columns]; NaN for those not due."""
        due = self._due(t)
        view = self._view(due, t, done) if due else None
        # By name: comparing probes compares all their fields, and this is done at every step.
        names, R = {probe.name for probe in due}, len(done.measured)
        blocks = []
        for probe, shape in zip(self.probes, self._shapes, strict=True):
            values = self._measured(probe, view, shape) if view and probe.name in names else None
            if values is None:
                values = torch.full(shape, math.nan, device=done.measured.device)
            blocks.append(values.to(torch.float32).reshape(R, -1))
        return blocks

    def _due(self, t: int) -> list[Probe]:
        return [probe for probe in self.probes if probe.is_due(t, self._setting.iterations)]

    def _view(self, due: Sequence[Probe], t: int, done: Done) -> StepView:
        """Build what the probes that are due see of the step just made."""
        moved = any(probe.updates for probe in due)
        return StepView(
            setting=self._setting,
            t=t,
            tokens=done.windows[..., :-1].long(),
            token_classes=self._token_classes,
            outputs=done.outputs,
            weights=done.before,
            gradients=done.gradients,
            updates=self._replicas.weights.minus(done.before) if moved else done.before.none(),
            slots=self._replicas.slots,
            corrections=self._replicas.corrections(t),
        )

    def _measured(self, probe: Probe, view: StepView, shape: tuple[int, ...]) -> Tensor | None:
        """Return what a probe gives; None if it fails and need not be strict."""
        try:
            return _checked(probe.measure(view), shape)
        except ParibusError:
            raise
        except Exception as error:
            if not self._strict:
                return None
            raise ParibusError(
                f"probe '{probe.name}' failed: {type(error).__name__}: {error}; fix it, or turn it "
                f"off with probes.every.{probe.name} = 0"
            ) from error


def _checked(values: object, shape: tuple[int, ...]) -> Tensor:
    """Return what a probe gave, if it has the shape that it declares."""
    if not isinstance(values, Tensor) or tuple(values.shape) != shape:
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        declared = f"{shape}: R replicas, then its parts and statistics"
        raise ValueError(f"it gave {found}, and must give a tensor of shape {declared}")
    if values.is_complex():
        raise TypeError(f"it gave complex numbers ({values.dtype}), of which records hold none")
    return values
