"""The probes of a stack: which are due, what they measure, and in which columns it is kept.

Axes: R replicas, P parts and S statistics of a probe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paribus.errors import ParibusError
from paribus.model import Column, Probe, StepView, is_there
from paribus.study import Setting
from paribus.training.replicas import Replicas
from paribus.training.step import Done, Kind


class Probing:
    """Those of `probes` whose modules the model has.

    Args:
        setting, replicas, n_replicas: of the trainer.
        token_classes: [V] the class of every token, on the device.
        strict: whether a probe that fails is an error, as in a dry run, or a value that is absent:
            a diagnostic is no reason to lose a trial in the middle.

    Raises ParibusError for a probe of a module that the model does not have.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        setting: Setting,
        replicas: Replicas,
        n_replicas: int,
        token_classes: Tensor,
        *,
        strict: bool,
    ) -> None:
        slots = tuple(replicas.slots)
        self.probes = tuple(p for p in probes if is_there(p, replicas.model, setting))
        self._setting, self._R, self._strict = setting, n_replicas, strict
        self._token_classes = token_classes
        columns = {probe.name: probe.columns(setting, slots) for probe in self.probes}
        self.columns: list[Column] = [c for of_one in columns.values() for c in of_one]
        self._layout = [
            (probe, len(columns[probe.name]), probe.shape(setting, n_replicas, slots))
            for probe in self.probes
        ]

    def due(self, t: int) -> list[Probe]:
        """Those that are measured at step t."""
        return [probe for probe in self.probes if probe.is_due(t, self._setting.iterations)]

    def kind(self, due: Sequence[Probe]) -> Kind:
        """What the step has to keep for them."""
        tapped = {path for probe in due for path in probe.paths(self._setting)}
        return Kind(tuple(sorted(tapped)), seen=bool(due))

    @torch.no_grad()
    def measure(self, due: Sequence[Probe], t: int, done: Done, replicas: Replicas) -> list[Tensor]:
        """[R, P S] of every probe, NaN for those that are not due."""
        view = self._view(due, t, done, replicas) if due else None
        # Training goes on from the optimizer's slots: code of the user's own is given copies.
        copied = {}
        if view and any(probe.is_own for probe in due):
            copied = {slot: rows.clone() for slot, rows in replicas.slots.items()}
        names = {probe.name for probe in due}
        blocks = []
        for probe, n_columns, shape in self._layout:
            values = None
            if view and probe.name in names:
                seen = replace(view, slots=copied) if probe.is_own else view
                values = self._watched(probe, seen, shape, replicas)
            if values is None:
                device = done.measured.device
                values = torch.full((self._R, n_columns), math.nan, device=device)
            blocks.append(values.to(torch.float32).reshape(self._R, n_columns))
        return blocks

    def _view(self, due: Sequence[Probe], t: int, done: Done, replicas: Replicas) -> StepView:
        """What the probes that are due see of the step just made."""
        moved = any(probe.updates for probe in due)
        return StepView(
            setting=self._setting,
            t=t,
            tokens=done.windows[..., :-1].long(),
            token_classes=self._token_classes,
            outputs=done.outputs,
            weights=done.before,
            gradients=done.gradients,
            updates=replicas.weights.minus(done.before) if moved else done.before.none(),
            slots=replicas.slots,
            corrections=replicas.corrections(t),
        )

    def _watched(
        self, probe: Probe, view: StepView, shape: tuple[int, ...], replicas: Replicas
    ) -> Tensor | None:
        """What a probe gives. Raises ParibusError, strict or not, where it writes."""
        rows = [replicas.weights, view.weights, view.gradients, view.updates]
        rows += [*view.slots.values(), *replicas.slots.values()]
        seen = [view.tokens, *view.outputs.values(), *(one.flat for one in rows)]
        before = [tensor._version for tensor in seen]
        values = self._one(probe, view, shape)
        if before != [tensor._version for tensor in seen]:
            raise ParibusError(
                f"probe '{probe.name}' writes to what it sees at step {view.t}; a probe must "
                "disturb nothing: let it write to a clone"
            )
        return values

    def _one(self, probe: Probe, view: StepView, shape: tuple[int, ...]) -> Tensor | None:
        try:
            return _checked(probe.measure(view), shape)
        except Exception as error:
            if not self._strict:
                return None
            raise ParibusError(
                f"probe '{probe.name}' failed: {type(error).__name__}: {error}; mend it, or turn "
                f"it off with probes.every.{probe.name} = 0"
            ) from error


def _checked(values: object, shape: tuple[int, ...]) -> Tensor:
    """What a probe gave, if it has the shape that it declares."""
    if not isinstance(values, Tensor) or tuple(values.shape) != shape:
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        declared = f"{shape}: R replicas, then its parts and statistics"
        raise ValueError(f"it gave {found}, and must give a tensor of shape {declared}")
    return values
