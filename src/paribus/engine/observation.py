"""Probes, and their view of a training step.

Axes: R replicas in the stack, B batch, T time, D d_model, V vocabulary, P parts, S statistics.
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

LOGITS = ""  # path of the model itself, whose outputs are the logits
EVERY_BLOCK = "blocks.*"  # in a probe's `modules`: the same path in every block


@dataclass(frozen=True)
class StepView:
    """A stack's training step, as probes see it; all tensors are detached.

    In a trial on several devices, `tokens` and `outputs` hold the rows on one device.

    Attributes:
        setting: The stack's setting.
        t: Step index, from 0.
        tokens: [R, B, T] input tokens.
        token_classes: [V] class of each token id (`paribus.engine.data.TOKEN_CLASSES`).
        outputs: {module path: [R, ...]} outputs of the modules that the probe names.
        weights: {parameter name: [R, ...]} weights before the update.
        gradients: {parameter name: [R, ...]} gradients of the mean loss, before clipping.
        updates: {parameter name: [R, ...]} weights after minus before the update; {} unless a
            probe that is due sets `updates`.
        slots: {slot: {parameter name: [R, ...]}} optimizer state after the step, such as AdamW's
            `exp_avg` and `exp_avg_sq`, without bias correction.
        corrections: {slot: {parameter name: number}} bias-correction divisors.
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
        """Input of each block, followed by the last block's output, each [R, B, T, D]."""
        paths = ["embedding", *(f"blocks.{i}" for i in range(self.setting.model.n_layer))]
        return [self.outputs[path] for path in paths]


Measure = Callable[[StepView], Tensor]
Labels = tuple[str, ...]


def require_labels(owner: str, labels: object) -> None:
    """Raise ValueError unless `labels` are valid parts of column names."""
    names = labels if isinstance(labels, tuple) and labels else ("",)
    are_names = all(isinstance(name, str) and name and "/" not in name for name in names)
    if not are_names or len(set(names)) < len(names):
        raise ValueError(
            f"{owner} = {labels!r} is invalid; use a tuple of distinct names without '/', such "
            "as ('mean', 'max')"
        )


class Column(NamedTuple):
    """A column that a probe records: one number per step and replica."""

    probe: str
    part: str
    statistic: str
    unit: str

    @property
    def name(self) -> str:
        """Column name in tables, `<probe>/<part>/<statistic>`."""
        return f"{self.probe}/{self.part}/{self.statistic}"


@dataclass(frozen=True)
class Probe:
    """Decorator that declares a function of a training step as a probe: `@probe("x", unit="L2")`.

    A probe measures training steps without affecting them.

    Attributes:
        name: Name in records.
        unit: Unit of the values.
        parts: Labels for axis P, or a function that returns them for a setting.
        statistics: Labels for axis S.
        every: Interval in steps; the first and last steps are always measured. 0 turns the probe
            off.
        modules: Paths of the modules whose outputs the probe needs, such as "embedding" or
            "blocks.*.attention.qkv".
        updates: Whether the probe needs `StepView.updates`.
        by_slot: Whether the parts are repeated for each optimizer slot, such as "exp_avg
            embedding".
        better: Direction of improvement, if any.
        label: Display name.
        digits: Displayed decimal places.
        drawings: Figures, with column names relative to the probe's; None plots the first
            statistic.
        measure: Function from a step to a tensor [R, P, S] on the step's device, without axes that
            are not declared. It returns NaN for a missing value, such as that of a token class
            without tokens.

    Raises ValueError for invalid labels, units or figures.
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
                f"probe '{self.name}' has every = {self.every!r}; set it to a number of steps, "
                "or to 0 to turn the probe off"
            )
        _ = self.metric(self.name), self.drawn  # validate them

    def __call__(self, measure: Measure) -> Probe:
        """Return this declaration with `measure` attached."""
        return replace(self, measure=measure)

    @property
    def drawn(self) -> tuple[Drawing, ...]:
        """Figures of the probe, with full column names.

        The default figure plots the first statistic over training with a panel for each part, or
        all statistics if the probe has no parts.
        """
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
        """Return the probe's metric.

        Args:
            first: column that the probe's name alone refers to.
        """
        name, label, unit = self.name, self.label, self.unit
        return Metric(name, label, unit, self.better, "probes", digits=self.digits, column=first)

    def columns(self, setting: Setting, slots: Sequence[str] = ()) -> list[Column]:
        """Return the probe's columns, in the order of the flattened axes [P, S].

        Args:
            slots: names of the optimizer's slots, used if `by_slot` is set.
        """
        parts, statistics = self._axes(setting, slots)
        pairs = product(("all",) if parts is None else parts, statistics or ("value",))
        return [Column(self.name, *pair, self.unit) for pair in pairs]

    def shape(self, setting: Setting, R: int, slots: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the shape of the tensor that `measure` must return."""
        axes = self._axes(setting, slots)
        return (R, *(len(labels) for labels in axes if labels is not None))

    def _axes(self, setting: Setting, slots: Sequence[str]) -> tuple[Labels | None, Labels | None]:
        """Return the labels for axes P and S.

        Raises ParibusError if the function `parts` fails or returns invalid labels.
        """
        parts = self.parts
        if callable(parts):
            with blamed(f"probe '{self.name}': its parts(setting) failed"):
                parts = parts(setting)
                require_labels("parts", parts)
        if self.by_slot:
            parts = tuple(" ".join((slot, part)) for slot in slots for part in parts or ("all",))
        return parts, self.statistics

    def paths(self, setting: Setting) -> Labels:
        """Return `modules`, with "blocks.*" expanded to the path of every block."""
        blocks = [f"blocks.{i}" for i in range(setting.model.n_layer)]
        return tuple(
            path.replace(EVERY_BLOCK, block)
            for path in self.modules
            for block in (blocks if EVERY_BLOCK in path else [""])
        )


def has_modules(probe: Probe, model: nn.Module, setting: Setting) -> bool:
    """Return whether `model` has all modules that a probe names.

    Raises ParibusError if a module is missing from a model without custom parts.
    """
    names = {name for name, _ in model.named_modules()}
    missing = [path for path in probe.paths(setting) if path not in names]
    if missing and not setting.model.modules.named and setting.model.attention.kind == CAUSAL:
        raise ParibusError(
            f"probe '{probe.name}' needs the module '{missing[0]}', which the model does not "
            "have; see paribus.engine.model.gpt for the names",
            code="unknown",
        )
    return not missing


@contextmanager
def capture(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collect the detached outputs of the modules at `paths`, keyed by path, in forward passes."""
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
