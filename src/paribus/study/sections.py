"""Tables of a study file that all trainers share: arms, endpoints, inference, and so on.

Each table is validated by itself here; `Study` checks that the tables are consistent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.metric import QUESTIONS, Metric
from paribus.study.base import (
    MOST_RESAMPLES,
    MOST_SEEDS,
    Name,
    Prose,
    Seed,
    Spec,
    Steps,
    Title,
    Word,
)

LEAST_PAIRS = 5  # fewer are described and not tested (`paribus.statistics.DESCRIPTIVE_BELOW`)
Outcomes = Annotated[tuple[str, ...], Field(strict=False)]
HELD_OUT = ("evaluation", "parts")  # records of what is measured on held-out text


class Arm(Spec):
    """An arm: one way of training, as overrides of the shared setting."""

    title: Title = ""
    """Display name; by default its name."""
    description: Prose = ""
    """Description for readers."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted overrides of the shared setting."""
    reference: str | None = None
    """The arm with which this arm is compared; None stands for the study's baseline."""


class Interaction(Spec):
    """An interaction: a difference between two effects.

    An arm's effect is its change against its own reference; the interaction is the mean effect of
    the arms `of` minus that of the arms `than`, seed by seed.
    """

    title: Title = ""
    """Display name; by default its name."""
    of: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Arms whose effects are averaged."""
    than: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Arms whose mean effect is subtracted."""

    @model_validator(mode="after")
    def _compares_two_things(self) -> Self:
        arms = [*self.of, *self.than]
        if len(set(arms)) < len(arms):
            raise ValueError(f"{arms} contain an arm twice; name each once, on one side")
        return self


class Endpoint(Spec):
    """A metric on which arms are compared (see `Metric`)."""

    metric: Word
    """A measure, `measure/part`, `probe/part/statistic`, or a metric that the trainer records."""
    primary: bool = False
    """Whether every contrast has a verdict on this endpoint, which then needs a margin."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Differences within +- margin, in the metric's unit, are too small to matter."""
    smallest_effect: Annotated[float, Field(gt=0)] | None = None
    """The smallest change worth detecting, for a primary endpoint. If the design is likely to miss
    it, there is a warning before the run and in the verdict."""


class Inference(Spec):
    """Tests of contrasts: level, power, and the population that claims are about."""

    test: Literal["paired_t", "welch_t"] = "paired_t"
    """The deciding test on seed means: the paired t, or Welch's t for unpaired runs (the default
    of the trainer `runs`). Other tests are shown as sensitivity analyses."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Two-sided level, controlled by Holm's method over the family of primary endpoints x
    contrasts."""
    power: Annotated[float, Field(ge=0.5, lt=1)] = 0.80
    """Power at which detectable effects are computed."""
    resamples: Annotated[int, Field(ge=10_000, le=MOST_RESAMPLES)] = 10_000
    """Number of resamples of every bootstrap."""
    seed: Seed = 0
    """Seed of the resampling."""
    target: Literal["this item set", "new questions", "new items"] = "new questions"
    """The population of claims, besides new seeds. "this item set" (these questions and this
    held-out text) is decided by `test` on seed means; it is the default of custom trainers,
    which ask no questions. "new questions" includes the error of sampling questions in the
    accuracy on tasks. "new items" also includes that of sampling documents in metrics on
    held-out text, or of contiguous blocks if the text has fewer than five documents."""
    crossed: Literal["components", "bootstrap"] = "components"
    """How the error of seeds and items is estimated for claims about new items: from variance
    components, or by a bootstrap of both, which counts their interaction three times."""
    windows: Literal["blocks"] = "blocks"
    """For "new items" in a text of fewer than five documents: its neighbouring windows are joined
    into contiguous blocks, because they are not independent."""
    choice: Literal["with_lack_of_fit", "propagated", "fixed"] = "with_lack_of_fit"
    """For tuned studies: whether errors include the choice of each arm's values or ignore it
    ("fixed"). "with_lack_of_fit" chooses for each arm the vertex of a parabola through the best
    learning rate (or other positive number) of its grid and that rate's neighbours. Its error has
    two parts: other tuning seeds would give another vertex, and the loss curve is not a parabola.
    "propagated" includes only the first part, as studies before 2026-11-27 did. If the best
    value lacks two neighbours, both use the best candidate tried and estimate the error by
    resampling the tuning seeds."""
    first_stage_weight: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Square of the first stage's weight, if `paribus extend` ever adds a second stage. It is
    fixed before any result is seen, so that the second stage may have any size."""

    @property
    def chooses_vertex(self) -> bool:
        """True if tuned arms are judged at the vertex of a fitted parabola."""
        return self.choice != "fixed"

    @property
    def claims_new_questions(self) -> bool:
        """True if claims about tasks generalise to new questions."""
        return self.target != "this item set"

    def claims_new_items(self, metric: Metric) -> bool:
        """Return whether claims about `metric` generalise to new items.

        Items are then resampled together with the seeds.
        """
        if metric.items == QUESTIONS:
            return self.claims_new_questions
        return self.target == "new items" and metric.record in HELD_OUT


class Stability(Spec):
    """Rules for divergence and spikes of a training loss, and for an unstable baseline."""

    smoothing_steps: Steps = 10
    """Number of last steps whose mean is the final loss. A run whose final loss is above its first
    loss has diverged."""
    median_steps: Steps = 20
    """Number of previous steps whose median and MAD define a spike."""
    mad_multiplier: Annotated[float, Field(gt=0)] = 8.0
    """Number of MADs above the median that make a spike."""
    spike_steps: Steps = 3
    """Number of consecutive steps above median + mad_multiplier x MAD that make a spike."""
    unstable_above: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """A baseline is unstable if more than this share of its trials had an event."""

    @property
    def steps_needed(self) -> int:
        """Smallest number of steps with which a run can be checked for events."""
        return max(self.smoothing_steps, self.median_steps + self.spike_steps)


class Decision(Spec):
    """The rule by which an arm is adopted, and its parameters."""

    rule: Word = "superiority"
    """A rule of docs/reference/rules.md, or a custom rule `file.py:name`."""
    calibration_budget: Annotated[float, Field(ge=0)] | None = None
    """Largest allowed increase of the expected calibration error; None for no limit."""
    throughput_budget: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Largest allowed loss of training throughput, as a share; None for no limit."""
    benefit: Word | None = None
    """For the rule non_inferiority: the endpoint on which a non-inferior arm must gain."""
    least_benefit: Annotated[float, Field(ge=0)] = 0.0
    """Smallest gain on `benefit`: in the endpoint's unit, or as a share for endpoints compared
    as ratios (throughput, memory)."""
    unreachable: Literal["refuse", "accept"] = "refuse"
    """Whether to refuse or accept a study that cannot reach a verdict: it has a single arm, or its
    rule cannot adopt any arm, or its hypotheses name impossible outcomes. The reason can be too few
    seeds, or a missing limit, benefit or endpoint."""


class Resources(Spec):
    """Hardware of a trial.

    It affects speed and the last bits of results, so it is a control and is recorded for every
    trial, but it is not part of the study's digest.
    """

    devices_per_trial: Annotated[int, Field(ge=1)] | None = None
    """Number of devices of one machine that train a trial together by data parallelism. 1 trains
    one trial at a time on each device; None trains several trials on a device side by side."""
    checkpoint_activations: bool = False
    """Whether blocks store only their inputs and recompute the rest in the backward pass: less
    memory, and a third more operations (Chen et al. 2016). Needs devices_per_trial."""

    @property
    def devices(self) -> int:
        """Number of devices that train a trial."""
        return self.devices_per_trial or 1

    @model_validator(mode="after")
    def _checkpoints_train_alone(self) -> Self:
        if self.checkpoint_activations and self.devices_per_trial is None:
            raise ValueError(
                "checkpoint_activations = true needs one trial at a time per device; set "
                "devices_per_trial too, such as 1"
            )
        return self


class Plan(Spec):
    """Plan of interim analyses (looks)."""

    looks: Annotated[
        tuple[Annotated[int, Field(gt=0, le=MOST_SEEDS)], ...],
        Field(strict=False, min_length=1),
    ]
    """Number of seeds at each look, ascending; the last look has all seeds."""


class Hypothesis(Spec):
    """A statement that the verdicts of a study support or contradict."""

    name: Name
    """Name of the hypothesis in verdicts and pages."""
    statement: Prose
    """The expectation, in words."""
    arms: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The arms that the hypothesis is about; by default every compared arm."""
    endpoint: Word | None = None
    """The primary endpoint that the hypothesis is about; None for all of them."""
    supported_by: Outcomes
    """Outcomes (such as "ADOPT") or rows of the rule (such as "row 3") that support it."""
    contradicted_by: Outcomes = ()
    """Outcomes or rows that contradict it."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if both := set(self.supported_by) & set(self.contradicted_by):
            raise ValueError(
                f"'{min(both)}' would both support and contradict '{self.name}'; remove it from "
                "supported_by or contradicted_by"
            )
        return self
