"""Frozen settings of a trial: data, model and training.

Unknown keys, wrong types and invalid sizes are rejected when settings are loaded. Values are never
modified or clamped.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from paribus.engine.setting.architecture import Model
from paribus.engine.setting.batches import Batch, BatchSize, Ramp, step_ends
from paribus.engine.setting.data import Data, Tokens
from paribus.errors import ParibusError
from paribus.study.base import MOST_STEPS, Part, Steps, TrialSetting, later

Option = bool | int | float | str | list[int | float | str]
Options = dict[str, Option]  # the file of an optimizer or a loss declares its options
Beta = Annotated[float, Field(ge=0, lt=1)]


class Schedule(Part):
    """Learning rate schedule that starts with a linear warmup."""

    kind: Annotated[str, Field(min_length=1)] = "constant"
    """Schedule from `paribus/engine/training/schedules/` (constant, cosine, linear, wsd), or a
    custom one: `file.py:name`."""
    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Number of warmup steps, in which the learning rate grows linearly."""
    final_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Learning rate at the end of the run, as a fraction of the peak; ignored by a constant
    schedule."""
    options: Annotated[Options, later({})] = Field(default_factory=dict)
    """Options of the schedule, such as `decay` for wsd."""


class Group(Part):
    """Parameter group with separate optimizer settings. The first matching group applies."""

    match: Annotated[str, Field(min_length=1)]
    """Glob pattern for parameter names, such as `blocks.*.mlp.*`; `*` matches any characters, `?`
    matches one character."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate of the group."""
    learning_rate_factor: Annotated[float, Field(ge=0)] | None = None
    """Peak learning rate of the group, as a multiple of `optimizer.learning_rate`; 0 freezes its
    parameters."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Weight decay of the group, applied to the parameters selected by `optimizer.decay`."""
    optimizer: str | None = None
    """Optimizer of the group; same names as `optimizer.name`."""
    options: Options = Field(default_factory=dict)
    """Options of the group's optimizer."""

    def factor(self, optimizer: Optimizer) -> float:
        """Return the group's peak learning rate as a multiple of the optimizer's."""
        if self.learning_rate is not None:
            return self.learning_rate / optimizer.learning_rate
        return 1.0 if self.learning_rate_factor is None else self.learning_rate_factor

    @model_validator(mode="after")
    def _has_one_rate(self) -> Self:
        if self.learning_rate is not None and self.learning_rate_factor is not None:
            raise ValueError(
                f"the group '{self.match}' has both learning_rate and learning_rate_factor; set "
                "only one of them"
            )
        return self


class Optimizer(Part):
    """Optimizer and its hyperparameters."""

    name: str = "adamw"
    """Optimizer from `paribus/engine/training/optimizers/` (adamw, lion, muon, schedule_free,
    soap), or a custom one: `file.py:name`."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    """Peak learning rate, which the schedule scales."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    """Decay rates of AdamW's moments, also if AdamW trains only the parameters that another
    optimizer does not support."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Term added to AdamW's denominator for numerical stability."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Decoupled weight decay (Loshchilov & Hutter 2019); each step subtracts learning rate x weight
    decay x weight."""
    decay: Literal["matrices", "linear"] = "matrices"
    """`matrices` applies weight decay to all matrices; `linear` excludes embeddings. Biases and
    norm parameters are never decayed."""
    options: Options = Field(default_factory=dict)
    """Options of the optimizer, such as Muon's `momentum` and `ns_steps`."""
    groups: Annotated[tuple[Group, ...], Field(strict=False)] = ()
    """Groups of parameters with a different learning rate, weight decay or optimizer."""


class Loss(Part):
    """Training loss. Evaluation always uses plain cross-entropy."""

    name: str = "cross_entropy"
    """Loss from `paribus/engine/training/losses/`, or a custom one: `file.py:name`."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability mass that `cross_entropy` spreads evenly over the vocabulary (Szegedy et al.
    2016)."""
    z_loss: Annotated[float, Field(ge=0)] = 0.0
    """Weight of log^2 Z in `cross_entropy`, which prevents logit drift (Chowdhery et al. 2022)."""
    options: Options = Field(default_factory=dict)
    """Options of a custom loss."""
    auxiliary: Annotated[dict[str, Annotated[float, Field(ge=0)]], later({})] = Field(
        default_factory=dict
    )
    """Weights of custom modules' auxiliary losses, keyed by name; unlisted losses have weight 1."""


class Average(Part):
    """Weight averaging. Averaged weights are evaluated, saved and exported."""

    kind: Annotated[str, Field(min_length=1), later("none")] = "none"
    """Weight average from `paribus/engine/training/averages/` (ema), or a custom one:
    `file.py:name`; `none` uses the weights after the last step."""
    options: Annotated[Options, later({})] = Field(default_factory=dict)
    """Options of the weight average, such as `decay` for ema."""


class Training(Part):
    """Training budget and optimization. Early stopping is not supported."""

    iterations: Steps | None = None
    """Number of optimizer steps. With a growing batch, this is the budget in steps of the final
    size, so the trial takes more steps for the same number of tokens."""
    tokens: Tokens | None = None
    """Number of training tokens, as an alternative to `iterations`."""
    budget: Literal["tokens", "bytes", "flops"] = "tokens"
    """Unit in which budgets are equal across arms. With `bytes` or `flops`, the number of
    iterations of an arm is chosen so that its text bytes or training FLOPs match those of its
    reference arm, to the nearest step."""
    batch_size: BatchSize = 16
    """Number of windows per step, or a ramp, `{ from = 4, to = 16, until = 0.3 }`, whose `shape` is
    "linear" or "doubling"."""
    micro_batch: Batch | None = None
    """Number of windows per forward pass, with gradient accumulation, if a batch does not fit in
    memory. It must divide `batch_size`; a ramp grows in multiples of it."""
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    """Learning rate schedule."""
    average: Annotated[Average, later(Average())] = Average()
    grad_clip: Annotated[float, Field(gt=0)] | None = 1.0
    """Maximum total gradient norm for clipping; None disables clipping."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """`bfloat16` is mixed precision, with float32 weights and optimizer state and bfloat16 matrix
    products. `auto` is resolved at registration, to bfloat16 if the device supports it natively,
    otherwise to float32. The precision of evaluation is set separately."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout probability in training."""
    keep: Annotated[tuple[Steps, ...], Field(strict=False)] = ()
    """Step numbers after which the weights are saved, in addition to the last step."""
    keep_every: Steps | None = None
    """Interval in steps at which the weights are saved."""

    @model_validator(mode="after")
    def _batches_are_whole(self) -> Self:
        first = (self.batch_size.first,) if isinstance(self.batch_size, Ramp) else ()
        for size in (self.largest_batch, *first):
            if self.micro_batch and size % self.micro_batch:
                raise ValueError(
                    f"micro_batch = {self.micro_batch} does not divide the batch size {size}, but "
                    "micro-batches must have equal sizes; set micro_batch to a divisor of it"
                )
        if first and self.budget != "tokens":
            raise ValueError(
                f"a growing batch_size requires a budget in tokens, but budget = '{self.budget}'; "
                "remove budget, or set batch_size to a single number"
            )
        return self

    @property
    def largest_batch(self) -> int:
        """Batch size in windows, which is the final size if the batch grows."""
        return self.batch_size.to if isinstance(self.batch_size, Ramp) else self.batch_size


class Setting(TrialSetting):
    """Complete settings of a trial, except its seed."""

    data: Data = Data()
    model: Model = Model()
    training: Training

    @model_validator(mode="after")
    def _budget_is_complete(self) -> Self:
        training = self.training
        if (training.iterations is None) == (training.tokens is None):
            raise ValueError(
                "training requires exactly one of iterations and tokens; set one and remove the "
                "other"
            )
        if training.tokens is not None and training.tokens % self.tokens_per_step:
            multiple = training.tokens // self.tokens_per_step * self.tokens_per_step
            raise ValueError(
                f"training.tokens = {training.tokens} is not a multiple of the "
                f"{self.tokens_per_step} tokens per step (batch_size x seq_len); set it to "
                f"{multiple or self.tokens_per_step}"
            )
        size = training.batch_size
        steps = self.windows // (size.first if isinstance(size, Ramp) else size)
        if steps > MOST_STEPS:
            raise ValueError(
                f"training would take up to {steps:,} steps, more than the limit of "
                f"{MOST_STEPS:,}; increase training.batch_size, or reduce the budget"
            )
        if training.schedule.warmup > self.budget_iterations:
            raise ValueError(
                f"training.schedule.warmup = {training.schedule.warmup} exceeds the run's "
                f"{self.budget_iterations} iterations; reduce the warmup"
            )
        last = max(training.keep, default=0)
        if last > self.iterations:
            raise ValueError(
                f"training.keep contains step {last}, but the run has only {self.iterations} "
                f"steps; remove {last} from training.keep"
            )
        return self

    @property
    def own_named(self) -> dict[str, str]:
        """Import paths of custom code, keyed by module site or study key."""
        training = self.training
        names = {
            "training.optimizer.name": training.optimizer.name,
            "training.loss.name": training.loss.name,
            "training.schedule.kind": training.schedule.kind,
            "training.average.kind": training.average.kind,
        }
        for i, group in enumerate(training.optimizer.groups):
            names[f"training.optimizer.groups.{i}"] = group.optimizer or ""
        paths = {key: path for key, path in (names | self.data.own).items() if ":" in path}
        return self.model.modules.named | paths

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Sorted step numbers after which the weights are saved, except the last step."""
        every = self.training.keep_every
        regular = range(every, self.iterations, every) if every else ()
        return tuple(sorted({*self.training.keep, *regular} - {self.iterations}))

    @property
    def common(self) -> Setting:
        """Copy of the settings with the default learning rate and weight decay.

        Trials can be trained together if they differ only in these two values.
        """
        default = Optimizer()
        optimizer = self.training.optimizer.model_copy(
            update={
                "learning_rate": default.learning_rate,
                "weight_decay": default.weight_decay,
            }
        )
        training = self.training.model_copy(update={"optimizer": optimizer})
        return self.model_copy(update={"training": training})

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens per step, at the final batch size if the batch grows."""
        return self.training.largest_batch * self.data.seq_len

    @property
    def budget_iterations(self) -> int:
        """Budget in steps of the final batch size, which is `iterations` for a constant batch."""
        if self.training.iterations is not None:
            return self.training.iterations
        assert self.training.tokens is not None
        return self.training.tokens // self.tokens_per_step

    @property
    def windows(self) -> int:
        """Number of training windows of a trial."""
        return self.budget_iterations * self.training.largest_batch

    @property
    def iterations(self) -> int:
        """Number of steps of a trial."""
        return len(self._ends)

    @property
    def tokens(self) -> int:
        """Number of training tokens of a trial."""
        return self.windows * self.data.seq_len

    @property
    def _ends(self) -> np.ndarray:
        """Cumulative number of windows after each step, [steps]."""
        return step_ends(self.training.batch_size, self.windows, self.training.micro_batch or 1)

    def windows_before(self, t: int) -> int:
        """Return the number of windows before step t, where t may exceed the number of steps."""
        ends = self._ends
        beyond = max(t - len(ends), 0)
        return int(ends[t - beyond - 1] if t else 0) + beyond * self.training.largest_batch

    def tokens_before(self, t: int) -> int:
        """Return the number of tokens before step t."""
        return self.windows_before(t) * self.data.seq_len

    def step_with(self, windows: int) -> int:
        """Return the number of steps needed to train on at least `windows` windows."""
        return int(np.searchsorted(self._ends, windows)) + 1 if windows else 0

    def place(self, t: int) -> float:
        """Return the position of step t in a schedule, in steps of the final batch size.

        With a constant batch, the position is t. With a growing batch, it is the number of tokens
        trained on up to and including step t, in units of a final-size step, minus 1.
        """
        if not isinstance(self.training.batch_size, Ramp):
            return t
        return self.windows_before(t + 1) / self.training.largest_batch - 1


def rows_of(setting: Setting, size: int) -> int:
    """Return the number of sequences per batch on each of `size` ranks.

    Raises ParibusError if the batch cannot be split evenly into whole micro-batches.
    """
    batch, micro = setting.training.batch_size, setting.training.micro_batch
    if size == 1:
        return setting.training.largest_batch
    if not isinstance(batch, int):
        raise ParibusError(
            "a growing training.batch_size requires a single device per trial; remove "
            "resources.devices_per_trial, or set training.batch_size to a single number",
            code="unsupported",
        )
    rows, rest = divmod(batch, size)
    if rest or (micro and rows % min(micro, rows)):
        raise ParibusError(
            f"training.batch_size = {batch} cannot be split evenly among {size} devices "
            f"(resources.devices_per_trial) with training.micro_batch = {micro}; set "
            f"training.batch_size to a multiple of {size * (micro or 1)}",
            code="conflict",
        )
    return rows
