"""Probes, which measure training steps, and the step data that they receive.

Axes: R replicas in the stack, B batch, T time, D d_model, V vocabulary, P parts, S statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from torch import Tensor, nn

from paribus.drawing import PART, Drawing
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed
from paribus.metric import Better, Metric, readable
from paribus.study.choices import undecorated

LOGITS = ""  # path of the model itself, whose outputs are the logits
EVERY_BLOCK = "blocks.*"  # in a probe's `modules`: the same path in every block


@dataclass(frozen=True)
class StepView:
    """Detached tensors of a training step, passed to probes.

    In a trial on several devices, `tokens` and `outputs` contain only one device's batch rows.

    Attributes:
        setting: Setting that all replicas share.
        t: 0-based step index.
        tokens: [R, B, T] input tokens.
        token_classes: [V] class of each token id (`paribus.engine.data.TOKEN_CLASSES`).
        outputs: {module path: [R, ...]} outputs of the modules listed in `Probe.modules`.
        weights: {parameter name: [R, ...]} weights before the update.
        gradients: {parameter name: [R, ...]} gradients of the mean loss, before clipping.
        updates: {parameter name: [R, ...]} weights after the update minus weights before it, or {}
            if no due probe sets `updates`.
        slots: {slot: {parameter name: [R, ...]}} optimizer state after the step, such as AdamW's
            `exp_avg` and `exp_avg_sq`, without bias correction.
        corrections: {slot: {parameter name: divisor}} for bias correction.
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
        """Inputs of all blocks and the last block's output, each [R, B, T, D]."""
        paths = ["embedding", *(f"blocks.{i}" for i in range(self.setting.model.n_layer))]
        return [self.outputs[path] for path in paths]


Measure = Callable[[StepView], Tensor]
Labels = tuple[str, ...]


def require_labels(owner: str, labels: object) -> None:
    """Raise ValueError if `labels` cannot be used in column names."""
    names = labels if isinstance(labels, tuple) and labels else ("",)
    are_names = all(isinstance(name, str) and name and "/" not in name for name in names)
    if not are_names or len(set(names)) < len(names):
        raise ValueError(
            f"{owner} = {labels!r} is invalid; use a tuple of distinct names without '/', such "
            "as ('mean', 'max')"
        )


class Column(NamedTuple):
    """Column recorded by a probe, with one value per step and replica."""

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
    """Decorator that declares a function as a probe, `@probe("x", unit="L2")`.

    A probe measures training steps without affecting them.

    Attributes:
        name: Name in records.
        unit: Unit of the values.
        parts: Labels for axis P, or a function that returns them for a setting.
        statistics: Labels for axis S.
        every: Interval in steps, in addition to the first and last steps. 0 disables the probe.
        modules: Paths of the modules whose outputs the probe needs, such as "embedding" or
            "blocks.*.attention.qkv".
        updates: Whether the probe needs `StepView.updates`.
        by_slot: Whether the parts are repeated for each optimizer slot, such as "exp_avg
            embedding".
        better: Direction of improvement, if any.
        label: Display name.
        digits: Number of displayed decimal places.
        drawings: Figures, with column names relative to the probe's; None plots the first
            statistic.
        measure: Function that maps a `StepView` to a tensor [R, P, S] on the same device. Axes
            without declared labels are omitted. Missing values are NaN.

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
                "or to 0 to disable the probe"
            )
        _ = self.metric(self.name), self.drawn  # validate them

    def __call__(self, measure: Measure) -> Probe:
        """Return this declaration with `measure` attached."""
        return replace(self, measure=measure)

    @property
    def drawn(self) -> tuple[Drawing, ...]:
        """Figures of the probe, with full column names.

        By default, the first statistic is plotted over training with a panel for each part. If the
        probe has no parts, all statistics are plotted.
        """
        drawings, (first, *rest) = self.drawings, self.statistics or ("value",)
        if drawings is None:
            title, axis = self.label[0].upper() + self.label[1:], self.metric(self.name).title
            has_parts = self.parts is not None or self.by_slot
            column = f"{PART}/{first}" if has_parts else f"all/{PART if rest else first}"
            title = f"{title}, {first}" if has_parts and rest else title
            how = "panels" if has_parts or rest else "trend"
            drawings = (Drawing(column, how, title, axis),)
        return tuple(drawing.prefixed(self.name) for drawing in drawings)

    def metric(self, first: str) -> Metric:
        """Return a description of the probe as a metric.

        Args:
            first: column that the probe's name refers to without a suffix.
        """
        name, label, unit = self.name, self.label, self.unit
        return Metric(name, label, unit, self.better, "probes", digits=self.digits, column=first)

    def columns(self, setting: Setting, slots: Sequence[str] = ()) -> list[Column]:
        """Return the probe's columns, in the order of the flattened axes [P, S].

        Args:
            slots: names of the optimizer's state tensors, used if `by_slot` is set.
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
            with blamed(f"the function parts(setting) of probe '{self.name}' failed"):
                parts = parts(setting)
                require_labels("parts", parts)
        if self.by_slot:
            parts = tuple(" ".join((slot, part)) for slot in slots for part in parts or ("all",))
        return parts, self.statistics

    def paths(self, setting: Setting) -> Labels:
        """Return the paths in `modules`, with "blocks.*" expanded to every block."""
        blocks = [f"blocks.{i}" for i in range(setting.model.n_layer)]
        return tuple(
            path.replace(EVERY_BLOCK, block)
            for path in self.modules
            for block in (blocks if EVERY_BLOCK in path else [""])
        )


def has_modules(probe: Probe, model: nn.Module, setting: Setting) -> bool:
    """Return whether `model` has all modules that a probe requires.

    Raises ParibusError if a module is missing from a model without custom parts.
    """
    names = {name for name, _ in model.named_modules()}
    missing = [path for path in probe.paths(setting) if path not in names]
    if missing and not (setting.model.modules.named or setting.model.unsupported_kinds):
        raise ParibusError(
            f"probe '{probe.name}' requires the module '{missing[0]}', but the model has no such "
            "module; use a name from model.named_modules()",
            code="unknown",
        )
    return not missing


@contextmanager
def capture(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Capture the detached outputs of the modules at `paths` in forward passes, keyed by path."""
    outputs: dict[str, Tensor] = {}

    def keep(path: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        outputs[path] = output.detach()

    with ExitStack() as hooks:
        for path in paths:
            hook = model.get_submodule(path).register_forward_hook(partial(keep, path))
            hooks.enter_context(hook)
        yield outputs
