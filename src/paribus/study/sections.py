"""Study sections common to all trainers: arms, endpoints, inference, decision and so on.

Each section is validated on its own here; `Study` validates their consistency.
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
    """An experimental arm, defined by overrides of the shared settings."""

    title: Title = ""
    """Display name of the arm; by default its name."""
    description: Prose = ""
    """Description of the arm for reports."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the shared settings, keyed by dotted name."""
    reference: str | None = None
    """The arm to which this arm is compared; None for the study's baseline."""


class Interaction(Spec):
    """An interaction, defined as the difference between two mean effects.

    An arm's effect is its difference from its reference. The interaction is the mean effect of the
    arms in `of` minus the mean effect of the arms in `than`, computed for each seed.
    """

    title: Title = ""
    """Display name of the interaction; by default its name."""
    of: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Arms whose effects are averaged."""
    than: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Arms whose mean effect is subtracted."""

    @model_validator(mode="after")
    def _compares_two_things(self) -> Self:
        arms = [*self.of, *self.than]
        if len(set(arms)) < len(arms):
            raise ValueError(
                f"'of' and 'than' share or repeat an arm ({', '.join(arms)}); list each arm once"
            )
        return self


class Endpoint(Spec):
    """A metric on which arms are compared (see `Metric`)."""

    metric: Word
    """Metric: `measure`, `measure/part`, `probe/part/statistic`, or a metric of the trainer."""
    primary: bool = False
    """Whether each contrast gets a verdict on this endpoint. A primary endpoint needs a margin."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Equivalence margin, in the metric's unit: smaller differences are considered irrelevant."""
    smallest_effect: Annotated[float, Field(gt=0)] | None = None
    """Smallest effect worth detecting, in the metric's unit, for a primary endpoint. A study that
    is unlikely to detect this effect causes a warning before the run and in the verdict."""


class Inference(Spec):
    """Settings of the statistical tests: level, power, and target population."""

    test: Literal["paired_t", "welch_t"] = "paired_t"
    """The primary test on per-seed means: the paired t-test, or Welch's t-test for unpaired runs
    (the default of the trainer `runs`). Other tests are reported as sensitivity analyses."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Two-sided significance level. Holm's method controls the family-wise error rate over all
    primary endpoints and contrasts."""
    power: Annotated[float, Field(ge=0.5, lt=1)] = 0.80
    """Power for which minimum detectable effects are computed."""
    resamples: Annotated[int, Field(ge=10_000, le=MOST_RESAMPLES)] = 10_000
    """Number of bootstrap resamples."""
    seed: Seed = 0
    """Seed of the bootstrap."""
    target: Literal["this item set", "new questions", "new items"] = "new questions"
    """The population of items to which results generalize, in addition to new seeds. "this item
    set" treats task questions and held-out text as fixed; it is the default of custom trainers.
    "new questions" includes the sampling error of questions in task accuracy. "new items" also
    includes the sampling error of documents in metrics on held-out text, or of contiguous blocks
    if the text has fewer than five documents."""
    crossed: Literal["components", "bootstrap"] = "components"
    """How the combined error of seeds and items is estimated: from variance components, or by a
    bootstrap of both, which counts their interaction three times."""
    windows: Literal["blocks"] = "blocks"
    """How "new items" are sampled in a text of fewer than five documents: neighbouring windows are
    joined into contiguous blocks, because they are not independent."""
    choice: Literal["with_lack_of_fit", "propagated", "fixed"] = "with_lack_of_fit"
    """How standard errors account for hyperparameter selection in tuned studies. "fixed" ignores
    the selection. "with_lack_of_fit" selects, for each arm, the vertex of a parabola through the
    best grid value and its two neighbours. It includes the error from the finite number of tuning
    seeds, and the error from a loss curve that is not a parabola. "propagated" includes only the
    former, as studies before 2026-11-27 did. If the best value lacks two neighbours, both select
    the best candidate and estimate the error by resampling the tuning seeds."""
    first_stage_weight: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Squared weight of the first stage, in case `paribus extend` adds a second stage. The weight
    is fixed before any result is known, so the second stage can have any size."""

    @property
    def chooses_vertex(self) -> bool:
        """True if tuned arms are compared at the vertex of a fitted parabola."""
        return self.choice != "fixed"

    @property
    def claims_new_questions(self) -> bool:
        """True if task results generalize to new questions."""
        return self.target != "this item set"

    def claims_new_items(self, metric: Metric) -> bool:
        """Return whether results for `metric` generalize to new items.

        If so, items are resampled together with seeds.
        """
        if metric.items == QUESTIONS:
            return self.claims_new_questions
        return self.target == "new items" and metric.record in HELD_OUT


class Stability(Spec):
    """Criteria for divergence, loss spikes, and an unstable baseline."""

    smoothing_steps: Steps = 10
    """Number of last steps whose mean loss is the final loss. A run has diverged if its final loss
    exceeds its first loss."""
    median_steps: Steps = 20
    """Number of preceding steps over which the median and MAD for spike detection are computed."""
    mad_multiplier: Annotated[float, Field(gt=0)] = 8.0
    """Spike threshold, in MADs above the median."""
    spike_steps: Steps = 3
    """Number of consecutive steps above median + mad_multiplier * MAD that count as a spike."""
    unstable_above: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Fraction of trials with a spike or divergence above which the baseline is unstable."""

    @property
    def steps_needed(self) -> int:
        """Minimum number of training steps for the detection of spikes and divergence."""
        return max(self.smoothing_steps, self.median_steps + self.spike_steps)


class Decision(Spec):
    """The decision rule for adopting an arm, and its parameters."""

    rule: Word = "superiority"
    """A built-in rule (see docs/reference/rules.md), or a custom rule `file.py:name`."""
    calibration_budget: Annotated[float, Field(ge=0)] | None = None
    """Maximum allowed increase in expected calibration error; None for no limit."""
    throughput_budget: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Maximum allowed loss of training throughput, as a fraction; None for no limit."""
    benefit: Word | None = None
    """The endpoint on which a non-inferior arm must improve, for the rule non_inferiority."""
    least_benefit: Annotated[float, Field(ge=0)] = 0.0
    """Minimum improvement on `benefit`, in the endpoint's unit, or as a fraction for endpoints
    that are compared as ratios (throughput, memory)."""
    unreachable: Literal["refuse", "accept"] = "refuse"
    """Whether to refuse or accept a study that cannot reach a verdict, for example because it has
    a single arm or too few seeds, because a limit, benefit or endpoint is missing, or because its
    hypotheses name impossible outcomes. Fewer than five seeds without hypotheses only warn."""


class Resources(Spec):
    """Hardware resources of a trial.

    They affect speed and rounding, so they are recorded for every trial and compared between arms,
    but they are not part of the study's digest.
    """

    devices_per_trial: Annotated[int, Field(ge=1)] | None = None
    """Number of devices per trial, on one machine and with data parallelism. 1 runs one trial at
    a time on each device; None runs several trials on each device concurrently."""
    checkpoint_activations: bool = False
    """Whether to use activation checkpointing, which saves memory at the cost of about a third
    more operations (Chen et al. 2016). Requires devices_per_trial."""

    @property
    def devices(self) -> int:
        """Number of devices per trial."""
        return self.devices_per_trial or 1

    @model_validator(mode="after")
    def _checkpoints_train_alone(self) -> Self:
        if self.checkpoint_activations and self.devices_per_trial is None:
            raise ValueError(
                "checkpoint_activations = true requires devices_per_trial; add "
                "devices_per_trial = 1, or set it to the number of devices"
            )
        return self


class Plan(Spec):
    """Schedule of interim analyses (looks)."""

    looks: Annotated[
        tuple[Annotated[int, Field(gt=0, le=MOST_SEEDS)], ...],
        Field(strict=False, min_length=1),
    ]
    """Cumulative number of seeds at each interim analysis, ascending; the last is the total."""


class Hypothesis(Spec):
    """A hypothesis that the study's verdicts can support or contradict."""

    name: Name
    """Name of the hypothesis in reports."""
    statement: Prose
    """The expected result, in plain language."""
    arms: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Arms to which the hypothesis applies; by default all arms with a reference."""
    endpoint: Word | None = None
    """Primary endpoint to which the hypothesis applies; None for all primary endpoints."""
    supported_by: Outcomes
    """Verdicts (such as "ADOPT") or rule rows (such as "row 3") that support the hypothesis."""
    contradicted_by: Outcomes = ()
    """Verdicts or rule rows that contradict the hypothesis."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if both := set(self.supported_by) & set(self.contradicted_by):
            raise ValueError(
                f"'{min(both)}' both supports and contradicts the hypothesis '{self.name}'; remove "
                "it from supported_by or contradicted_by"
            )
        return self
