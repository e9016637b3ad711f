"""The frozen specification of a trial: data, model, training.

Unknown keys, wrong types and sizes that cannot work are refused when it is loaded. Nothing mutates
or clamps a specification.
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
    """The learning rate over the run, as a fraction of its peak: a linear warmup, then a `kind`."""

    kind: Annotated[str, Field(min_length=1)] = "constant"
    """A file of `paribus/engine/training/schedules/` (constant, cosine, linear, wsd), or
    a custom one: `file.py:name`."""
    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Iterations of linear warmup."""
    final_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    """End of the run, as a fraction of the peak; a constant has none."""
    options: Annotated[Options, later({})] = Field(default_factory=dict)
    """Options of the schedule, such as `decay` of wsd."""


class Group(Part):
    """Parameters with their own optimizer settings; the first group that matches counts."""

    match: Annotated[str, Field(min_length=1)]
    """Pattern of parameter names: `blocks.*.mlp.*`; `*` matches anything, `?` one character."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate."""
    learning_rate_factor: Annotated[float, Field(ge=0)] | None = None
    """Peak relative to the study's learning rate; 0 keeps the initial values."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Weight decay of the parameters that `decay` selects."""
    optimizer: str | None = None
    """A name as in `optimizer.name`."""
    options: Options = Field(default_factory=dict)
    """Options of that optimizer."""

    def factor(self, optimizer: Optimizer) -> float:
        """Return the peak relative to the study's learning rate."""
        if self.learning_rate is not None:
            return self.learning_rate / optimizer.learning_rate
        return 1.0 if self.learning_rate_factor is None else self.learning_rate_factor

    @model_validator(mode="after")
    def _has_one_rate(self) -> Self:
        if self.learning_rate is not None and self.learning_rate_factor is not None:
            raise ValueError(
                f"the group '{self.match}' has both learning_rate and learning_rate_factor; set one"
            )
        return self


class Optimizer(Part):
    """The optimizer."""

    name: str = "adamw"
    """A file of `paribus/engine/training/optimizers/` (adamw, lion, muon, schedule_free,
    soap), or a custom one: `file.py:name`."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    """Peak learning rate, which the schedule multiplies."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    """Decay rates of AdamW's moments, also for parameters that another optimizer leaves to it."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """AdamW's eps."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Decoupled (Loshchilov & Hutter 2019): a step subtracts this share of a weight, times the
    learning rate."""
    decay: Literal["matrices", "linear"] = "matrices"
    """`matrices` decays every matrix, embeddings included; `linear` excludes embeddings. Biases,
    norm gains and parameters of an embedding norm never decay."""
    options: Options = Field(default_factory=dict)
    """Options of the optimizer, such as Muon's `momentum` and `ns_steps`."""
    groups: Annotated[tuple[Group, ...], Field(strict=False, max_length=100)] = ()
    """Parameters with another learning rate, weight decay or optimizer."""


class Loss(Part):
    """The training loss; every evaluation is plain cross-entropy."""

    name: str = "cross_entropy"
    """A file of `paribus/engine/training/losses/`, or a custom one:
    `file.py:name`."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of cross_entropy's target that is spread over the vocabulary (Szegedy et al. 2016)."""
    z_loss: Annotated[float, Field(ge=0)] = 0.0
    """Weight of log^2 Z in cross_entropy, which keeps logits from drifting (Chowdhery et al. 2022).
    """
    options: Options = Field(default_factory=dict)
    """Options of a custom loss."""
    auxiliary: Annotated[dict[str, Annotated[float, Field(ge=0)]], later({})] = Field(
        default_factory=dict
    )
    """Weights of the auxiliary losses of custom modules, by name; by default 1."""


class Average(Part):
    """Averaging of weights; averages are evaluated, kept and exported instead of trained
    weights."""

    kind: Annotated[str, Field(min_length=1), later("none")] = "none"
    """A file of `paribus/engine/training/averages/` (ema), or a custom one:
    `file.py:name`; `none` uses the weights of the last step."""
    options: Annotated[Options, later({})] = Field(default_factory=dict)
    """Options of the average, such as `decay` of ema."""


class Training(Part):
    """Budget and optimization. There is no early stopping: budgets match exactly."""

    iterations: Steps | None = None
    """Optimizer steps of a trial. With a growing batch, steps of the last size; the trial makes
    more steps, over as many tokens."""
    tokens: Tokens | None = None
    """Budget in tokens, instead of `iterations`."""
    budget: Literal["tokens", "bytes", "flops"] = "tokens"
    """Unit in which the budgets of arms match. With `bytes` or `flops`, an arm's iterations follow
    from its reference's, to the nearest step: by the bytes of text in its tokens, or by the FLOPs
    of a step."""
    batch_size: BatchSize = 16
    """Windows of a step; or a ramp, `{ from = 4, to = 16, until = 0.3 }`, whose `shape` is
    "linear" or "doubling"."""
    micro_batch: Batch | None = None
    """Windows in memory at once, if a batch does not fit: gradients of the parts are added. It must
    divide `batch_size`; a ramp grows by multiples of it."""
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    """Schedule of the learning rate."""
    average: Annotated[Average, later(Average())] = Average()
    grad_clip: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest total gradient norm; larger gradients are scaled down to it."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """`bfloat16` is mixed precision: float32 weights and optimizer, lower matrix products. `auto`
    is bfloat16 if the device has it, else float32, settled when the study is registered.
    Evaluation has its own precision."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of activations that is dropped in training."""
    keep: Annotated[tuple[Steps, ...], Field(strict=False)] = ()
    """Steps after which the weights are kept, besides the last."""
    keep_every: Steps | None = None
    """Interval in steps at which the weights are kept."""

    @model_validator(mode="after")
    def _batches_are_whole(self) -> Self:
        first = (self.batch_size.first,) if isinstance(self.batch_size, Ramp) else ()
        for size in (self.largest_batch, *first):
            if self.micro_batch and size % self.micro_batch:
                raise ValueError(
                    f"micro_batch = {self.micro_batch} does not divide {size} of batch_size; the "
                    "parts of a batch have equal sizes"
                )
        if first and self.budget != "tokens":
            raise ValueError(
                f"a batch_size that grows needs a budget in tokens, and this is in {self.budget}; "
                "remove budget, or set batch_size to one number"
            )
        return self

    @property
    def largest_batch(self) -> int:
        """Number of windows in a step; in the last step if the batch grows."""
        return self.batch_size.to if isinstance(self.batch_size, Ramp) else self.batch_size


class Setting(TrialSetting):
    """Everything that a trial needs besides its seed."""

    data: Data = Data()
    model: Model = Model()
    training: Training

    @model_validator(mode="after")
    def _budget_is_complete(self) -> Self:
        training = self.training
        if (training.iterations is None) == (training.tokens is None):
            raise ValueError("training needs either iterations or tokens, and not both")
        if training.tokens is not None and training.tokens % self.tokens_per_step:
            multiple = training.tokens // self.tokens_per_step * self.tokens_per_step
            raise ValueError(
                f"training.tokens = {training.tokens} is not a whole number of steps of "
                f"{self.tokens_per_step} tokens (batch_size x seq_len); use "
                f"{multiple or self.tokens_per_step}"
            )
        size = training.batch_size
        steps = self.windows // (size.first if isinstance(size, Ramp) else size)
        if steps > MOST_STEPS:
            raise ValueError(
                f"training has up to {steps:,} steps; {MOST_STEPS:,} are the most: use a larger "
                "training.batch_size"
            )
        if training.schedule.warmup > self.budget_iterations:
            raise ValueError(
                f"training.schedule.warmup = {training.schedule.warmup} exceeds the run's "
                f"{self.budget_iterations} iterations; use a smaller warmup"
            )
        last = max(training.keep, default=0)
        if last > self.iterations:
            raise ValueError(
                f"training.keep = {last} is after the last of {self.iterations} steps; name steps "
                "of the run"
            )
        return self

    @property
    def own_named(self) -> dict[str, str]:
        """Import paths of custom code: modules by site, everything else by key of the study."""
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
        """Steps after which the weights are kept, in order, without the last."""
        every = self.training.keep_every
        regular = range(every, self.iterations, every) if every else ()
        return tuple(sorted({*self.training.keep, *regular} - {self.iterations}))

    @property
    def common(self) -> Setting:
        """The setting without learning rate and weight decay, in which replicas of a stack may
        differ."""
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
        """Number of tokens in a step; in the last step if the batch grows."""
        return self.training.largest_batch * self.data.seq_len

    @property
    def budget_iterations(self) -> int:
        """Budget in steps of the last size: the number of steps, unless the batch grows."""
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
        """Cumulative number of windows after each step."""
        return step_ends(self.training.batch_size, self.windows, self.training.micro_batch or 1)

    def windows_before(self, t: int) -> int:
        """Return the number of windows before step t; steps beyond the run have the last size."""
        ends = self._ends
        beyond = max(t - len(ends), 0)
        return int(ends[t - beyond - 1] if t else 0) + beyond * self.training.largest_batch

    def tokens_before(self, t: int) -> int:
        """Return the number of tokens before step t."""
        return self.windows_before(t) * self.data.seq_len

    def step_with(self, windows: int) -> int:
        """Return the number of steps needed to train on at least this many windows."""
        return int(np.searchsorted(self._ends, windows)) + 1 if windows else 0

    def place(self, t: int) -> float:
        """Return the position of step t in schedules, which count tokens.

        This is t, or with a growing batch the tokens trained on including step t, in steps of the
        last size, minus one.
        """
        if not isinstance(self.training.batch_size, Ramp):
            return t
        return self.windows_before(t + 1) / self.training.largest_batch - 1


def rows_of(setting: Setting, size: int) -> int:
    """Return the sequences of a batch on each of `size` ranks.

    Raises ParibusError if the batch cannot be split evenly, in whole micro-batches.
    """
    batch, micro = setting.training.batch_size, setting.training.micro_batch
    if size == 1:
        return setting.training.largest_batch
    if not isinstance(batch, int):
        raise ParibusError(
            "a training.batch_size that grows needs one device; remove "
            "resources.devices_per_trial, or set one number",
            code="unsupported",
        )
    rows, rest = divmod(batch, size)
    if rest or (micro and rows % min(micro, rows)):
        raise ParibusError(
            f"training.batch_size = {batch} on resources.devices_per_trial = {size} leaves parts "
            f"that training.micro_batch = {micro} does not divide; make it a multiple of both",
            code="conflict",
        )
    return rows
