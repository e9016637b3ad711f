"""Probes, and their view of a training step.

Axes: R replicas of the stack, B batch, T time, D d_model, V vocabulary, P parts, S statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from typing import NamedTuple

from torch import Tensor, nn

from paribus.drawing import PART, Drawing
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting
from paribus.engine.setting.architecture import CAUSAL
from paribus.errors import ParibusError, blamed
from paribus.metric import Better, Metric, readable
from paribus.study.choices import undecorated

LOGITS = ""  # path of the model itself, whose output are the logits
EVERY_BLOCK = "blocks.*"  # in a probe's `modules`: the same path in every block


@dataclass(frozen=True)
class StepView:
    """A training step of a stack; all tensors are detached.

    Attributes:
        setting: Setting of the stack.
        t: The step, from 0.
        tokens: [R, B, T] inputs of the step.
        token_classes: [V] class of every token id (`paribus.engine.data.TOKEN_CLASSES`).
        outputs: {module path: [R, ...]} outputs of the probe's modules.
        weights: {parameter name: [R, ...]} before the update.
        gradients: Gradients of the mean loss before clipping, by parameter name.
        updates: Weights after the update minus before; empty unless a probe that is due declares
            `updates`.
        slots: {slot: {parameter name: [R, ...]}} state of the optimizer after the step, such as
            AdamW's `exp_avg` and `exp_avg_sq`, without bias correction.
        corrections: {slot: {parameter name: number}} divisors of bias correction.

    Over several devices, tokens and outputs are the rows of one device.
    """

    setting: Setting
    t: int
    tokens: Tensor
    token_classes: Tensor
    outputs: Mapping[str, Tensor]
    weights: Rows
    gradients: Rows
    updates: Rows
    slots: Mapping[str, Rows]
    corrections: Mapping[str, Mapping[str, float]]

    @property
    def block_inputs(self) -> list[Tensor]:
        """Inputs of each block, then the output of the last one, [R, B, T, D] each."""
        paths = ["embedding", *(f"blocks.{i}" for i in range(self.setting.model.n_layer))]
        return [self.outputs[path] for path in paths]


Measure = Callable[[StepView], Tensor]
Labels = tuple[str, ...]


def require_labels(owner: str, labels: object) -> None:
    """Raise ValueError for labels that cannot name columns."""
    names = labels if isinstance(labels, tuple) and labels else ("",)
    are_names = all(isinstance(name, str) and name and "/" not in name for name in names)
    if not are_names or len(set(names)) < len(names):
        raise ValueError(
            f"{owner} = {labels!r} must be a tuple of names, such as ('mean', 'max'), each once "
            "and without a '/'"
        )


class Column(NamedTuple):
    """A column of a probe: one number per step and replica."""

    probe: str
    part: str
    statistic: str
    unit: str

    @property
    def name(self) -> str:
        """Name in tables, `<probe>/<part>/<statistic>`."""
        return f"{self.probe}/{self.part}/{self.statistic}"


@dataclass(frozen=True)
class Probe:
    """Declares a function of a step as a probe: `@probe("name", unit="L2")`.

    A probe measures while training and does not change training.

    Attributes:
        name: Name in records.
        unit: Unit of its values.
        parts: Labels of P, or a function of the setting that returns them.
        statistics: Labels of S.
        every: Interval in steps; steps 0 and the last are always measured.
        modules: Paths of the modules whose outputs it needs, such as "embedding" or
            "blocks.*.attention.qkv".
        updates: True if it needs `StepView.updates`.
        by_slot: True if it has its parts once per optimizer slot, such as "exp_avg embedding".
        better: Direction of an improvement, if any.
        label: Name for readers.
        digits: Decimals for readers.
        drawings: Figures, with columns relative to its name; None draws its first statistic.
        measure: The function: it maps a step to [R, P, S] on the step's device, without the axes
            that are not declared. NaN marks a value that does not exist, such as that of a token
            class without tokens.

    Raises ValueError for labels, a unit or figures that cannot be.
    """

    name: str
    _: KW_ONLY
    unit: str
    parts: Labels | Callable[[Setting], Labels] | None = None
    statistics: Labels | None = None
    every: int = 1
    modules: Labels = ()
    updates: bool = False
    by_slot: bool = False
    better: Better = "neither"
    label: str = ""
    digits: int = 4
    drawings: tuple[Drawing, ...] | None = None
    measure: Measure = undecorated

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or readable(self.name))
        for option, labels in (("parts", self.parts), ("statistics", self.statistics)):
            if labels is not None and not callable(labels):
                require_labels(f"probe '{self.name}': {option}", labels)
        if not isinstance(self.every, int) or self.every < 0:
            raise ValueError(
                f"probe '{self.name}': every = {self.every!r} must be a number of steps, or 0 to "
                "turn it off"
            )
        _ = self.metric(self.name), self.drawn  # validate them

    def __call__(self, measure: Measure) -> Probe:
        """Return the probe that `measure` computes."""
        return replace(self, measure=measure)

    @property
    def drawn(self) -> tuple[Drawing, ...]:
        """Its figures with full column names; by default its first statistic over training, with a
        panel per part, or all statistics."""
        drawings, (first, *rest) = self.drawings, self.statistics or ("value",)
        if drawings is None:
            title, axis = self.label[0].upper() + self.label[1:], self.metric(self.name).title
            has_parts = self.parts is not None or self.by_slot
            column = f"{PART}/{first}" if has_parts else f"all/{PART if rest else first}"
            title = f"{title}, {first}" if has_parts and rest else title
            how = "panels" if has_parts or rest else "trend"
            drawings = (Drawing(column, how, title, axis),)
        return tuple(drawing.of(self.name) for drawing in drawings)

    def metric(self, first: str) -> Metric:
        """Return the metric of the column; `first` is the column that the probe's name alone refers
        to."""
        name, label, unit = self.name, self.label, self.unit
        return Metric(name, label, unit, self.better, "probes", digits=self.digits, column=first)

    def columns(self, setting: Setting, slots: Sequence[str] = ()) -> list[Column]:
        """Return the probe's columns in the order of a flattened [P, S], given the optimizer's
        slots."""
        parts, statistics = self._axes(setting, slots)
        pairs = product(("all",) if parts is None else parts, statistics or ("value",))
        return [Column(self.name, *pair, self.unit) for pair in pairs]

    def shape(self, setting: Setting, R: int, slots: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the shape that `measure` must give."""
        axes = self._axes(setting, slots)
        return (R, *(len(labels) for labels in axes if labels is not None))

    def _axes(self, setting: Setting, slots: Sequence[str]) -> tuple[Labels | None, Labels | None]:
        """Return the labels of P and of S. Raises ParibusError if a function returns invalid
        ones."""
        parts = self.parts
        if callable(parts):
            with blamed(f"probe '{self.name}': its parts(setting) failed"):
                parts = parts(setting)
                require_labels("parts", parts)
        if self.by_slot:
            parts = tuple(" ".join((slot, part)) for slot in slots for part in parts or ("all",))
        return parts, self.statistics

    def paths(self, setting: Setting) -> Labels:
        """Return `modules` with the paths of all blocks."""
        blocks = [f"blocks.{i}" for i in range(setting.model.n_layer)]
        return tuple(
            path.replace(EVERY_BLOCK, block)
            for path in self.modules
            for block in (blocks if EVERY_BLOCK in path else [""])
        )


def has_modules(probe: Probe, model: nn.Module, setting: Setting) -> bool:
    """Return True if `model` has the modules of a probe, False if a custom part replaced one.

    Raises ParibusError for any other missing module.
    """
    names = {name for name, _ in model.named_modules()}
    missing = [path for path in probe.paths(setting) if path not in names]
    if missing and not setting.model.modules.named and setting.model.attention.kind == CAUSAL:
        raise ParibusError(
            f"probe '{probe.name}': the model has no module '{missing[0]}'; see "
            "paribus.engine.model.gpt for their names",
            code="unknown",
        )
    return not missing


@contextmanager
def capture(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collect detached outputs of the modules at `paths` during forward passes."""
    outputs: dict[str, Tensor] = {}

    def keep(path: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            outputs[path] = output.detach()

        return hook

    handles = [model.get_submodule(path).register_forward_hook(keep(path)) for path in paths]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
