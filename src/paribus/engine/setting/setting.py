"""The frozen specification of what one trial is trained with: data, model, training.

Unknown keys, wrong types and sizes that cannot work are refused here, before anything runs.
Nothing mutates or clamps a spec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.engine.setting.architecture import Init, Model
from paribus.engine.setting.batches import BatchSize, Ramp, step_with, total_steps, windows_after
from paribus.engine.setting.bounds import MOST_KEPT, Batch, Tokens, why_too_large
from paribus.engine.setting.data import Data
from paribus.errors import ParibusError
from paribus.study.base import Grown, Part, TrialSetting
from paribus.study.bounds import MOST_STEPS, Steps

Option = bool | int | float | str | list[int | float | str]
Options = dict[str, Option]
"""Of an optimizer or a loss: which there are, and what they may be, is declared in its own file."""


class Schedule(Grown):
    """A quantity over the run, as a fraction of its peak: a linear warmup, then a `kind`."""

    later = ("initial_fraction", "options")

    kind: Annotated[str, Field(min_length=1)] = "constant"
    """After the warmup: a file of `paribus/engine/training/schedules/` (constant, cosine, linear,
    wsd, power, inverse_sqrt), or the user's own: `package.module:name` or `file.py:name`."""
    warmup: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Iterations of linear warmup."""
    initial_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """What the warmup starts from, as a fraction of the peak; the first step is one step above."""
    final_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    """What the run ends at, as a fraction of the peak; a constant has none."""
    options: Options = Field(default_factory=dict)
    """Those that the schedule declares, such as `decay` of wsd."""


class Group(Grown):
    """Parameters that are trained otherwise than the rest; the first group that matches counts."""

    later = ("schedule",)

    match: Annotated[str, Field(min_length=1)]
    """A pattern of parameter names: `blocks.*.mlp.*`, where `*` is anything and `?` a character."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Their own peak."""
    learning_rate_factor: Annotated[float, Field(ge=0)] | None = None
    """Or how many times that of the rest; 0 keeps them as they start."""
    schedule: Schedule | None = None
    """Of their learning rate; without, that of `training.schedule`."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Of those among them that `decay` names."""
    optimizer: str | None = None
    """A name as in `optimizer.name`, and its `options`."""
    options: Options = Field(default_factory=dict)
    """Those of that optimizer."""

    def peak(self, optimizer: Optimizer) -> float:
        """Return their peak learning rate."""
        if self.learning_rate is not None:
            return self.learning_rate
        factor = 1.0 if self.learning_rate_factor is None else self.learning_rate_factor
        return optimizer.learning_rate * factor

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if self.learning_rate is not None and self.learning_rate_factor is not None:
            raise ValueError(
                f"the group '{self.match}' has both learning_rate and learning_rate_factor; set one"
            )
        return self


class Optimizer(Part):
    """What turns gradients into steps."""

    name: str = "adamw"
    """A file of `paribus/engine/training/optimizers/` (adamw, cautious_adamw, muon, soap,
    adafactor, schedule_free, lion, sgd), or the user's own: `package.module:name` or
    `file.py:name`."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    """The peak, which the schedule multiplies."""
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]],
        Field(strict=False),
    ] = (0.9, 0.95)
    """AdamW's, also for what another optimizer leaves to it."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """AdamW's as well."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Decoupled (Loshchilov & Hutter 2019): a step takes off this share of a weight, times the
    learning rate."""
    decay: Literal["matrices", "linear"] = "matrices"
    """`matrices` decays every matrix, embeddings included; `linear` leaves embeddings out.
    Biases, norm gains and whatever an embedding norm learns are never decayed."""
    options: Options = Field(default_factory=dict)
    """Those that the optimizer declares, such as Muon's `momentum` and `ns_steps`."""
    groups: Annotated[tuple[Group, ...], Field(strict=False, max_length=100)] = ()
    """Parameters with a learning rate, weight decay or optimizer of their own."""


class Loss(Grown):
    """What is learned from. Every evaluation is plain cross-entropy, whatever it is."""

    later = ("auxiliary",)

    name: str = "cross_entropy"
    """A file of `paribus/engine/training/losses/`, or the user's own: `package.module:name` or
    `file.py:name`."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of cross_entropy: the share of the target that is spread over the vocabulary (Szegedy et al.
    2016)."""
    z_loss: Annotated[float, Field(ge=0)] = 0.0
    """Of cross_entropy: the weight of log^2 Z, which keeps logits from drifting (Chowdhery et al.
    2022)."""
    options: Options = Field(default_factory=dict)
    """Those that an own loss declares."""
    auxiliary: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """What auxiliary losses of own modules are multiplied by before they are added, by name; 1 of
    one that is not named."""


"""Budgets that follow from what a step costs."""

OF_FLOAT16 = ("loss_scale", "skipped_steps")
"""What is measured in trials of float16 alone."""

SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2.0**120
"""Of the loss: a float32 holds more, and the objective is multiplied by it."""


class LossScale(Part):
    """Of float16, whose gradients would vanish or overflow without: dynamic loss scaling
    (Micikevicius et al. 2018), with the defaults of torch.amp.GradScaler. A step whose gradient
    overflows is skipped, and halves the scale."""

    initial: Annotated[float, Field(ge=SMALLEST_SCALE, le=LARGEST_SCALE)] = 2.0**16
    """The scale of the first step."""
    growth_interval: Steps = 2000
    """It is doubled after so many steps in a row without an overflow."""


class Average(Part):
    """Weights that are evaluated, kept and exported in the place of those that are trained."""

    kind: Annotated[str, Field(min_length=1)] = "none"
    """A file of `paribus/engine/training/averages/` (ema, last, lawa), or the user's own:
    `package.module:name` or `file.py:name`; `none` evaluates the weights of the last step."""
    options: Options = Field(default_factory=dict)
    """Those that it declares, such as `decay` of ema."""


class Training(Grown):
    """How long and with what the model is trained. No early stopping: budgets match exactly."""

    later = ("loss_scale", "schedules", "average")

    iterations: Steps | None = None
    """Optimizer steps of a trial; where batches grow, of the last size: more are made, of as many
    tokens in all."""
    tokens: Tokens | None = None
    """The budget in tokens, instead of `iterations`."""
    budget: Literal["tokens", "bytes", "flops"] = "tokens"
    """The unit in which the budgets of arms match. With `bytes` or `flops`, an arm's iterations
    follow from those of its reference, to the nearest step: by the bytes of text that its tokens
    are, or by the FLOPs of a step."""
    batch_size: BatchSize = 16
    """Windows that a step learns from; or a ramp, `{ from = 4, to = 16, until = 0.3 }`, whose
    `shape` is "linear", "doubling", or sizes in between: `[[0.05, 8], [0.1, 12]]`."""
    micro_batch: Batch | None = None
    """Windows that are in memory at once, where a whole batch does not fit: gradients of the parts
    are added up. It must divide `batch_size`; a ramp grows by whole ones."""
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    """Of the learning rate."""
    schedules: dict[Literal["weight_decay", "momentum"], Schedule] = Field(default_factory=dict)
    """Of weight decay, and of the momentum of muon or sgd, as fractions of what is set."""
    average: Average = Average()
    """Of weights along the run."""
    grad_clip: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest total gradient norm; larger gradients are scaled down to it."""
    precision: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """`bfloat16` is mixed: float32 weights and optimizer, bfloat16 matrix products; evaluation is
    float32 either way. `float16` is mixed as well, with `loss_scale`. `auto` is bfloat16 where the
    device has it, else float32: settled when the study is registered, and kept."""
    loss_scale: LossScale = LossScale()
    """Of `precision = "float16"` alone."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of activations that is dropped while training."""
    keep: Annotated[tuple[Steps, ...], Field(strict=False)] = ()
    """Steps after which the weights are kept, besides those of the last step."""
    keep_every: Steps | None = None
    """The same after every so many steps."""

    @model_validator(mode="after")
    def _batch_is_whole_micro_batches(self) -> Self:
        sizes: dict[str, Any] = {"batch_size": self.batch_size}
        if isinstance(self.batch_size, Ramp):
            sizes = {"batch_size.from": self.batch_size.first, "batch_size.to": self.batch_size.to}
            if not isinstance(self.batch_size.shape, str):
                sizes |= {
                    f"batch_size.shape.{i}": of for i, (_, of) in enumerate(self.batch_size.shape)
                }
        for key, size in sizes.items():
            if self.micro_batch and size % self.micro_batch:
                raise ValueError(
                    f"micro_batch = {self.micro_batch} does not divide {key} = {size}; the parts "
                    "of a batch are equally large"
                )
        return self

    @model_validator(mode="after")
    def _ramps_are_of_tokens(self) -> Self:
        if isinstance(self.batch_size, Ramp) and self.budget != "tokens":
            raise ValueError(
                f"a batch_size that grows needs a budget in tokens, and this is in {self.budget}; "
                "leave budget out, or state batch_size as one number"
            )
        return self

    @property
    def largest_batch(self) -> int:
        """Windows of a step, or of the last where they grow."""
        return self.batch_size.to if isinstance(self.batch_size, Ramp) else self.batch_size

    @property
    def all_schedules(self) -> Iterator[tuple[str, Schedule]]:
        """Yield every schedule with its key in the study."""
        yield "training.schedule", self.schedule
        for i, group in enumerate(self.optimizer.groups):
            if group.schedule:
                yield f"training.optimizer.groups.{i}.schedule", group.schedule
        for name, schedule in sorted(self.schedules.items()):
            yield f"training.schedules.{name}", schedule


class Setting(TrialSetting):
    """All that one trial needs besides its seed."""

    data: Data = Data()
    model: Model = Model()
    training: Training

    @model_validator(mode="after")
    def _budget_is_whole_steps(self) -> Self:
        training = self.training
        if (training.iterations is None) == (training.tokens is None):
            raise ValueError("training needs either iterations or tokens, and not both")
        if training.tokens is not None and training.tokens % self.tokens_per_step:
            whole = training.tokens // self.tokens_per_step * self.tokens_per_step
            raise ValueError(
                f"training.tokens = {training.tokens} is not a whole number of steps of "
                f"{self.tokens_per_step} tokens (batch_size x seq_len); "
                f"{whole or self.tokens_per_step} is"
            )
        if isinstance(training.batch_size, Ramp):
            steps = self.windows // training.batch_size.first
            if steps > MOST_STEPS:
                raise ValueError(
                    f"training.batch_size.from = {training.batch_size.first} would be up to "
                    f"{steps:,} steps; {MOST_STEPS:,} are the most: begin with larger batches"
                )
        for key, schedule in training.all_schedules:
            if schedule.warmup > self.budget_iterations:
                raise ValueError(
                    f"{key}.warmup = {schedule.warmup} exceeds the run's "
                    f"{self.budget_iterations} iterations; use a smaller warmup"
                )
        return self

    @model_validator(mode="after")
    def _kept_steps_are_made(self) -> Self:
        late = [step for step in self.training.keep if step > self.iterations]
        if late:
            raise ValueError(
                f"training.keep = {late[0]} is after the last of {self.iterations} steps; name "
                "steps of the run"
            )
        again = [step for step, n in Counter(self.training.keep).items() if n > 1]
        if again:
            raise ValueError(
                f"training.keep names step {again[0]} {self.training.keep.count(again[0])} times; "
                "weights are kept once: name it once"
            )
        every = self.training.keep_every
        wanted = len(self.training.keep) + (self.iterations // every if every else 0)
        if wanted > MOST_KEPT:
            raise ValueError(
                f"training.keep and keep_every would keep the weights of {wanted:,} steps; "
                f"{MOST_KEPT:,} are the most: keep fewer"
            )
        return self

    @model_validator(mode="after")
    def _somebody_could_train_it(self) -> Self:
        if why := why_too_large(self):
            raise ValueError(why)
        if self.iterations > MOST_STEPS:
            raise ValueError(
                f"training.tokens = {self.training.tokens} are {self.iterations:,} steps; "
                f"{MOST_STEPS:,} are the most: use a larger training.batch_size"
            )
        return self

    @property
    def own_named(self) -> dict[str, str]:
        """Custom modules by site; custom optimizers, loss and corpora by key of the study."""
        optimizer, loss = self.training.optimizer, self.training.loss
        named = {
            "training.optimizer.name": optimizer.name,
            "training.loss.name": loss.name,
            "training.average.kind": self.training.average.kind,
        }
        for i, group in enumerate(optimizer.groups):
            named[f"training.optimizer.groups.{i}"] = group.optimizer or ""
        named |= {key: schedule.kind for key, schedule in self.training.all_schedules}
        others = {key: path for key, path in (named | self.data.own).items() if ":" in path}
        return self.model.modules.named | others

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Steps after which the weights are kept, in their order, without the last."""
        every = self.training.keep_every
        regular = range(every, self.iterations, every) if every else ()
        return tuple(sorted({*self.training.keep, *regular} - {self.iterations}))

    @property
    def common(self) -> Setting:
        """Return what replicas of one stack have in common: all but learning rate, weight decay and
        initial weights. An own module may read how weights start; then that is in common too."""
        plain = Optimizer()
        same = {"learning_rate": plain.learning_rate, "weight_decay": plain.weight_decay}
        optimizer = self.training.optimizer.model_copy(update=same)
        training = self.training.model_copy(update={"optimizer": optimizer})
        own = self.model.modules.named
        model = self.model if own else self.model.model_copy(update={"init": Init()})
        return self.model_copy(update={"model": model, "training": training})

    @property
    def tokens_per_step(self) -> int:
        """Tokens that a step learns from, windows times their length; the last where they grow."""
        return self.training.largest_batch * self.data.seq_len

    @property
    def budget_iterations(self) -> int:
        """Steps of the last size that the budget comes to: of a trial whose batches do not grow,
        those that it makes."""
        if self.training.iterations is not None:
            return self.training.iterations
        assert self.training.tokens is not None
        return self.training.tokens // self.tokens_per_step

    @property
    def windows(self) -> int:
        """Windows that a trial is trained on."""
        return self.budget_iterations * self.training.largest_batch

    @property
    def iterations(self) -> int:
        """Steps that a trial makes."""
        if not isinstance(self.training.batch_size, Ramp):
            return self.budget_iterations
        return total_steps(*self._cut)

    @property
    def tokens(self) -> int:
        """Training tokens of one trial."""
        return self.windows * self.data.seq_len

    @property
    def _cut(self) -> tuple[int | Ramp, int, int]:
        return self.training.batch_size, self.windows, self.training.micro_batch or 1

    @property
    def n_largest(self) -> int:
        """How many steps have the largest batch that is made: the last ones."""
        most = self.windows_in(self.iterations - 1)
        sizes = (self.windows_in(t) for t in reversed(range(self.iterations)))
        return sum(1 for _ in takewhile(lambda size: size == most, sizes))

    def windows_in(self, t: int) -> int:
        """Windows that step t learns from."""
        return self.windows_before(t + 1) - self.windows_before(t)

    def windows_before(self, t: int) -> int:
        """Windows that a trial was trained on before step t."""
        return windows_after(*self._cut, t)

    def tokens_before(self, t: int) -> int:
        """Tokens that a trial was trained on before step t."""
        return self.windows_before(t) * self.data.seq_len

    def step_with(self, windows: int) -> int:
        """Return after how many steps a trial was first trained on so many windows."""
        return step_with(*self._cut, windows)

    def place(self, t: int) -> float:
        """Return where step t is in schedules, which go by tokens: t itself, unless batches grow;
        then what was trained on with it, in steps of the last size, less one."""
        if not isinstance(self.training.batch_size, Ramp):
            return t
        return self.windows_before(t + 1) / self.training.largest_batch - 1


def rows_of(setting: Setting, size: int) -> int:
    """Return how many sequences of a batch each of `size` ranks has.

    Raises ParibusError if they cannot have equally many, in whole micro-batches.
    """
    batch, micro = setting.training.batch_size, setting.training.micro_batch
    if size == 1:
        return setting.training.largest_batch
    if not isinstance(batch, int):
        raise ParibusError(
            "a training.batch_size that grows is of trials on one device; leave "
            "resources.devices_per_trial out, or state one number"
        )
    if batch % size:
        raise ParibusError(
            f"training.batch_size = {batch} cannot be shared alike by resources.devices_per_trial "
            f"= {size}; make one a multiple of the other"
        )
    each = batch // size
    if micro and each % min(micro, each):
        raise ParibusError(
            f"training.micro_batch = {micro} does not divide the {each} sequences that each of "
            f"{size} devices has of a batch; state a smaller one that does"
        )
    return each
