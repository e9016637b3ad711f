"""The tables of a study file besides the setting: arms, endpoints, inference, tasks ...

What each may hold is said here; what they say of each other is checked by `Study`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.metric import LONGEST, QUESTIONS, Metric
from paribus.study.allowed_text import Name, Prose, Title
from paribus.study.base import MOST_ARMS, MOST_ENTRIES, MOST_RESAMPLES, Seed, Spec, Steps

MOST_RULE = 1_000  # characters of a rule's name or import path
Outcomes = Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ENTRIES)]
MOST_DEVICES = 1_024  # of one trial
HELD_OUT = ("evaluation", "parts")  # records of what is measured on held-out text


class Arm(Spec):
    """One way of training, as a difference from the shared setting."""

    title: Title = ""
    """What readers call it; by default its name."""
    description: Prose = ""
    """What it is, for readers."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Dotted overrides of the shared setting."""
    reference: str | None = None
    """The arm it is compared with; None is the study's baseline."""


class Interaction(Spec):
    """An interaction: a difference between two effects.

    An arm's effect is its change against its own reference; the interaction is the mean effect of
    the arms `of` minus that of the arms `than`, seed by seed.
    """

    title: Title = ""
    """What readers call it; by default its name."""
    of: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=MOST_ARMS)]
    """Arms whose effects are averaged."""
    than: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=MOST_ARMS)]
    """Arms whose mean effect is taken from it."""

    @model_validator(mode="after")
    def _compares_two_things(self) -> Self:
        if twice := sorted(set(self.of) & set(self.than)):
            raise ValueError(
                f"'{twice[0]}' stands on both sides; an effect cannot differ from itself"
            )
        for side in (self.of, self.than):
            if len(set(side)) < len(side):
                raise ValueError(f"{list(side)} names an arm twice; name each once")
        return self


class Endpoint(Spec):
    """A measurement on which arms are compared: whatever something declares (see `Metric`)."""

    metric: Annotated[str, Field(min_length=1, max_length=LONGEST)]
    """A measure or `measure/part`, `probe/part/statistic`, or what the trainer records."""
    primary: bool = False
    """Whether every contrast has a verdict on it; it then needs a margin."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Differences within +- margin, in the metric's unit, are too small to matter."""
    smallest_effect: Annotated[float, Field(gt=0)] | None = None
    """Of a primary endpoint: the smallest change worth detecting. A design that would miss it is
    warned about before it runs, and in its verdict."""


class Inference(Spec):
    """The tests of contrasts: level, power, and what claims are about."""

    test: Literal["paired_t", "welch_t"] = "paired_t"
    """The test that decides on seed means: the paired t, or Welch's t of runs that are not paired
    (the default of the trainer `runs`). The others stand beside it as sensitivity analyses."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Two-sided level, held by Holm over the family of primary endpoints x contrasts."""
    power: Annotated[float, Field(ge=0.5, lt=1)] = 0.80
    """Power at which a detectable effect is stated."""
    resamples: Annotated[int, Field(ge=10_000, le=MOST_RESAMPLES)] = 10_000
    """Of every bootstrap."""
    seed: Seed = 0
    """Of the resampling."""
    target: Literal["this item set", "new questions", "new items"] = "new questions"
    """The population of claims, besides new seeds. Of "this item set" (these questions and this
    held-out text; the default of a trainer of one's own, which asks none) `test` on seed means
    decides; of "new questions", for accuracy on tasks, a test with the errors of both seeds and
    questions; of "new items" also, for what is measured on held-out text, of seeds and documents,
    or of seeds and contiguous blocks of a text that has fewer than five documents."""
    crossed: Literal["components", "bootstrap"] = "components"
    """How the error of seeds and items is found, where claims are about new items: from variance
    components, or by a bootstrap of both, which counts their interaction three times."""
    windows: Literal["blocks", "independent"] = "blocks"
    """Of "new items" in a text of fewer than five documents: whether its windows, which are
    neighbours, are joined to contiguous blocks; or taken as independent, which makes their error
    too small, in the kept studies up to 4.5 times."""
    choice: Literal["with_lack_of_fit", "propagated", "fixed"] = "with_lack_of_fit"
    """Of tuned studies: whether errors include the choice of each arm's values, or take it as
    given ("fixed"). "with_lack_of_fit" gives each arm the vertex of a parabola through the best
    learning rate (or other positive number) of its grid and that rate's neighbours. Its error has
    two parts: other tuning seeds would give another vertex, and the loss curve is not a parabola.
    "propagated" includes the first part alone, as studies before 2026-11-27 did. Where the best
    value has no two neighbours, both give the best candidate tried, and find the error by redrawing
    tuning seeds."""
    first_stage_weight: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """If `paribus extend` ever adds a second stage: the square of the first's weight when both are
    combined. It is fixed here, before anything was seen, so that the second may be of any size."""

    @property
    def chooses_vertex(self) -> bool:
        """Return whether tuned arms are judged at the vertex of a fitted parabola."""
        return self.choice != "fixed"

    @property
    def claims_new_questions(self) -> bool:
        """Claims from tasks are about new questions."""
        return self.target != "this item set"

    def claims_new_items(self, metric: Metric) -> bool:
        """Return whether claims about `metric` are about new items, resampled with the seeds."""
        if metric.items == QUESTIONS:
            return self.claims_new_questions
        return self.target == "new items" and metric.record in HELD_OUT


class Stability(Spec):
    """Events in a training loss curve, and the share of them that makes a baseline unstable."""

    smoothing_steps: Steps = 10
    """The final loss is the mean of so many last steps; above the first loss it is divergence."""
    median_steps: Steps = 20
    """A spike is judged against the median and MAD of so many steps before."""
    mad_multiplier: Annotated[float, Field(gt=0)] = 8.0
    """How many MADs above the median a spike is."""
    spike_steps: Steps = 3
    """Consecutive steps above median + mad_multiplier x MAD that make a spike."""
    unstable_above: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """A baseline is unstable where more than this share of its trials had an event."""

    @property
    def steps_needed(self) -> int:
        """The shortest run that can be judged."""
        return max(self.smoothing_steps, self.median_steps + self.spike_steps)


class Decision(Spec):
    """The rule by which an arm is adopted, and what it weighs."""

    rule: Annotated[str, Field(min_length=1, max_length=MOST_RULE)] = "superiority"
    """A rule of docs/reference/rules.md, or the user's own: `package.module:name` or
    `file.py:name`."""
    calibration_budget: Annotated[float, Field(ge=0)] | None = None
    """Largest rise of the expected calibration error; None limits it not."""
    throughput_budget: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Largest share of training throughput that may be lost; None limits it not."""
    benefit: Annotated[str, Field(min_length=1, max_length=LONGEST)] | None = None
    """Of non_inferiority: the endpoint on which an arm that is no worse must gain."""
    least_benefit: Annotated[float, Field(ge=0)] = 0.0
    """The least that it must gain: in the endpoint's unit, or as a share of what is compared as
    a ratio (throughput, memory)."""
    unreachable: Literal["refuse", "accept"] = "refuse"
    """Whether a study is registered whose rule can adopt nothing, or whose hypotheses name outcomes
    that cannot occur, with its number of seeds or for want of a limit, benefit or endpoint; or that
    has one arm, and so nothing to compare."""


class Resources(Spec):
    """Hardware of a trial. It changes speed and last bits, so it is a control and in every
    trial's record, but not part of the study's digest."""

    devices_per_trial: Annotated[int, Field(ge=1, le=MOST_DEVICES)] | None = None
    """Devices of one machine that train a trial together: each has the whole model and its rows of
    every batch (data parallelism). 1 trains one trial at a time on a device, None several side by
    side."""
    checkpoint_activations: bool = False
    """Whether blocks keep their inputs alone and compute the rest again in the backward pass: less
    memory, and a third more operations (Chen et al. 2016). Needs devices_per_trial."""

    @property
    def devices(self) -> int:
        """Number of devices that train a trial."""
        return self.devices_per_trial or 1

    @model_validator(mode="after")
    def _checkpoints_train_alone(self) -> Self:
        if self.checkpoint_activations and self.devices_per_trial is None:
            raise ValueError(
                "checkpoint_activations = true needs trials one at a time on a device; set "
                "devices_per_trial too, such as 1"
            )
        return self


class Hypothesis(Spec):
    """A statement that the verdicts of a study support or contradict."""

    name: Name
    """What verdicts and pages call it."""
    statement: Prose
    """What is expected, in words."""
    arms: Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ARMS)] = ()
    """The arms that it is about; none named: every arm that is compared."""
    endpoint: Annotated[str, Field(min_length=1, max_length=LONGEST)] | None = None
    """The primary endpoint that it is about; None: every one."""
    supported_by: Outcomes
    """Outcomes of verdicts, such as "ADOPT", or rows of the study's rule, such as "row 3"."""
    contradicted_by: Outcomes = ()
    """The same of what would contradict it."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if both := set(self.supported_by) & set(self.contradicted_by):
            raise ValueError(f"'{min(both)}' would both support and contradict '{self.name}'")
        return self
