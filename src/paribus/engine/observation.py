"""Probes, and what they see of a training step; model and trainer do not know who looks.

Axes: R replicas of the stack, B batch, T time, D d_model, V vocabulary, P parts, S statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import Tensor, nn

from paribus.drawing import PART, Drawing
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting
from paribus.engine.setting.architecture import CAUSAL
from paribus.errors import ParibusError, blamed
from paribus.metric import Better, Metric

LOGITS = ""  # the path of the model itself, whose output they are
EVERY_BLOCK = "blocks.*"  # in a probe's `modules`: the same path in every block


@dataclass(frozen=True)
class StepView:
    """One training step of a stack. Whatever can be seen is detached.

    Attributes:
        setting: what the stack is trained with.
        t: the step, from 0.
        tokens: [R, B, T] the inputs of the step.
        token_classes: [V] the class of every token id (`paribus.engine.data.TOKEN_CLASSES`).
        outputs: what the probe's modules gave in the forward pass: {module path: [R, ...]}.
        weights: {parameter name: [R, ...]} before the update.
        gradients: the same of the mean loss, before clipping.
        updates: weights after the update minus before; empty unless the probe asks for them.
        slots: {slot: {parameter name: [R, ...]}}, what the optimizer keeps after the step, such as
            AdamW's `exp_avg` and `exp_avg_sq`, without bias correction.
        corrections: {slot: {parameter name: number}}, what the optimizer divides it by, if by
            anything.

    Over several devices, tokens and outputs are of the rows of one of them.
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
        """[R, B, T, D] what enters each block, then what leaves the last one (`RESIDUAL`)."""
        paths = ["embedding", *(f"blocks.{i}" for i in range(self.setting.model.n_layer))]
        return [self.outputs[path] for path in paths]


Measure = Callable[[StepView], Tensor]
Labels = tuple[str, ...]


def require_labels(what: str, labels: object) -> None:
    """Raise ValueError where columns cannot be called by these labels."""
    names = labels if isinstance(labels, tuple) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{what} = {labels!r} must be a tuple of names, such as ('mean', 'max')")
    if len(set(names)) < len(names) or any("/" in name for name in names):
        raise ValueError(f"{what} = {labels!r}: each name once, and without a '/'")


@dataclass(frozen=True)
class Column:
    """One number per step and replica that a probe gives: where in the model, and what of it."""

    probe: str
    part: str
    statistic: str
    unit: str

    @property
    def name(self) -> str:
        """`<probe>/<part>/<statistic>`, as tables call it."""
        return f"{self.probe}/{self.part}/{self.statistic}"


@dataclass(frozen=True)
class Probe:
    """Something measured while training that disturbs nothing.

    Attributes:
        measure: from a step to [R, P, S] on the step's device; an axis that is not declared is not
            there, so that the simplest probe gives [R]. NaN stands for what is not there to be
            measured, such as a token class without a token, and becomes an absent row.
        name: how records call it.
        unit: of its values.
        source: where its definition is from.
        parts: labels of P, or a function of the setting that gives them.
        statistics: labels of S.
        every: it is measured at step 0, at every so many steps, and at the last one.
        modules: paths of the modules whose outputs it needs, such as "embedding" or
            "blocks.*.attention.qkv".
        updates: whether it needs `StepView.updates`.
        by_slot: whether it gives its parts once for each slot of the optimizer: P is slots x parts,
            and a part is called such as "exp_avg embedding".
        better: which direction is an improvement, if any.
        label, digits: what readers are shown.
        drawings: how it is drawn, columns without its name; None for its first
            statistic over training.
        is_own: whether it is the user's own.
    """

    measure: Measure
    name: str
    unit: str
    source: str
    parts: Labels | Callable[[Setting], Labels] | None
    statistics: Labels | None
    every: int
    modules: Labels
    updates: bool
    by_slot: bool
    better: Better
    label: str
    digits: int
    drawings: tuple[Drawing, ...] | None
    is_own: bool = False

    @property
    def drawn(self) -> tuple[Drawing, ...]:
        """Its drawings, declared or not, with the full names of their columns."""
        drawings = (self._default_drawing(),) if self.drawings is None else self.drawings
        return tuple(drawing.of(self.name) for drawing in drawings)

    def _default_drawing(self) -> Drawing:
        """Its first statistic over training, with a panel for each part; or all statistics."""
        title = self.label[0].upper() + self.label[1:]
        axis = Metric(self.name, self.label, self.unit, self.better, "probes").title
        first, *others = self.statistics or ("value",)
        if self.parts is not None or self.by_slot:
            about = title if not others else f"{title}, {first}"
            return Drawing(f"{PART}/{first}", "panels", about, axis)
        if others:
            return Drawing(f"all/{PART}", "panels", title, axis)
        return Drawing(f"all/{first}", "trend", title, axis)

    def metric(self, first: str) -> Metric:
        """Return what it declares; `first` is the column that its name alone stands for."""
        about = (self.name, self.label, self.unit, self.better)
        return Metric(*about, "probes", digits=self.digits, column=first)

    def columns(self, setting: Setting, slots: Sequence[str] = ()) -> list[Column]:
        """Return every number that it gives, in the order of a flattened [P, S].

        slots: names of what the optimizer keeps.
        """
        parts = self._parts(setting, slots)
        return [
            Column(self.name, part, statistic, self.unit)
            for part in (("all",) if parts is None else parts)
            for statistic in self.statistics or ("value",)
        ]

    def shape(self, setting: Setting, R: int, slots: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the shape that `measure` must give."""
        parts = self._parts(setting, slots)
        return (R, *(len(labels) for labels in (parts, self.statistics) if labels is not None))

    def _parts(self, setting: Setting, slots: Sequence[str]) -> Labels | None:
        parts = self._parts_of(setting) if callable(self.parts) else self.parts
        if not self.by_slot:
            return parts
        return tuple(" ".join((slot, part)) for slot in slots for part in parts or ("all",))

    def _parts_of(self, setting: Setting) -> Labels:
        """Return what its function of the setting gives. Raises ParibusError for no labels."""
        assert callable(self.parts)
        with blamed(f"probe '{self.name}': its parts(setting) failed"):
            parts = self.parts(setting)
            require_labels("parts", parts)
        return parts

    def paths(self, setting: Setting) -> Labels:
        """Return `modules` with every block written out."""
        blocks = [f"blocks.{i}" for i in range(setting.model.n_layer)]
        return tuple(
            path.replace(EVERY_BLOCK, block)
            for path in self.modules
            for block in (blocks if EVERY_BLOCK in path else [""])
        )

    def is_due(self, t: int, iterations: int) -> bool:
        """Tell whether it is measured at step t: the first, every `every`th and the last."""
        return t % self.every == 0 or t == iterations - 1

    def at(self, every: int) -> Probe:
        """Return the same probe at another cadence."""
        return replace(self, every=every)


def has_modules(probe: Probe, model: nn.Module, setting: Setting) -> bool:
    """Tell whether `model` has the probe's modules; one of the user's own need not have them all,
    nor need another attention.

    Raises ParibusError where a module is missing that nothing else has taken the place of.
    """
    own = set(setting.model.modules.named)
    if setting.model.attention.kind != CAUSAL:
        own.add("attention")
    for path in probe.paths(setting):
        try:
            model.get_submodule(path)
        except AttributeError:
            if any(_is_at(path, site) for site in own):
                return False
            raise ParibusError(
                f"probe '{probe.name}': the model has no module '{path}'; paribus.engine.model.gpt "
                "names those that it has"
            ) from None
    return True


def _is_at(path: str, site: str) -> bool:
    """Tell whether the module at `path` is, or lies in, what stands at `site`."""
    names = ("attention_norm", "mlp_norm") if site == "block_norm" else (site,)
    return any(name in path.split(".") for name in names)


@contextmanager
def capture(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collect the detached outputs of the modules at `paths` during forward passes within."""
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
