"""Data classes for the results of an analysis (analysis.json)."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Literal

from paribus import numbers
from paribus.analysis.along import Along
from paribus.analysis.table import Sampling, sampling_of
from paribus.analysis.tuning import Choice, Tuned
from paribus.digests import plain
from paribus.errors import ParibusError, nearest
from paribus.metric import Metric
from paribus.results import Control
from paribus.results.records import Reuse, RunsRecord
from paribus.statistics import Decided, EventRates, Interval, RunContrast, StabilityEvents
from paribus.study import Study


@dataclass(frozen=True)
class Summary:
    """Summary statistics of one metric in one arm, with the finite values keyed by seed."""

    arm: str
    metric: str
    values: dict[int, float]

    @property
    def n(self) -> int:
        """Number of trials with a finite value."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """Mean over trials, in the metric's unit, or None if there are no trials."""
        return fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample SD (ddof=1) over trials, or None for fewer than two trials."""
        return stdev(self.values.values()) if self.n > 1 else None


BudgetState = Literal["within", "over", "not shown"]


@dataclass(frozen=True)
class Stabilities:
    """Rates of divergence and loss spikes in an arm and its reference.

    The rates are over seeds that both arms have finished, or over all runs if runs are unpaired.

    Attributes:
        holm_p: p-value for equal rates of `any_event`, from McNemar's test (Fisher's exact test for
            unpaired runs). It accounts for looks or stages, and is Holm-adjusted over contrasts.
            None for fewer than five pairs or runs.
    """

    arm: str
    reference: str
    diverged: EventRates
    spiked: EventRates
    any_event: EventRates
    holm_p: float | None = None


@dataclass(frozen=True)
class Cost:
    """Mean cost over seed pairs, with a confidence interval.

    Attributes:
        interval: confidence interval at level 1 - alpha.
        state: whether the interval at level 1 - 2 alpha lies within the registered budget, or None
            without a budget. With fewer than five pairs, the state is "not shown".
    """

    mean: float
    interval: Interval
    state: BudgetState | None = None


@dataclass(frozen=True)
class Costs:
    """Costs of an arm relative to its reference, or None for costs that cannot be computed.

    Attributes:
        calibration: increase in expected calibration error.
        throughput: relative loss of training throughput.
        in_turn: whether `throughput` comes from interleaved timing of arms. Otherwise it comes
            from training times, which include other load on the machine.
        prefill, decoding: relative loss of inference throughput when processing full windows and
            when generating token by token, from interleaved timing of arms.
        more_parameters, more_flops, more_memory: relative increase in the number of parameters,
            training FLOPs and training memory.
    """

    arm: str
    reference: str
    calibration: Cost | None
    throughput: Cost | None
    in_turn: bool
    prefill: Cost | None
    decoding: Cost | None
    more_parameters: float | None = None
    more_flops: float | None = None
    more_memory: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """A seed that was excluded from a contrast, with the reason."""

    arm: str
    reference: str
    metric: str
    seed: int
    why: str


@dataclass(frozen=True)
class Check:
    """Result of a sensitivity analysis, that is, of a test other than the primary test.

    Attributes:
        holm_p: Holm-adjusted p-value, over the same family as the primary test.
        disagrees: whether the conclusion differs from that of the primary test.
    """

    test: str
    p_value: float
    holm_p: float
    disagrees: bool


def _rejects(p: float | None, alpha: float) -> bool:
    return p is not None and p <= alpha


@dataclass(frozen=True, eq=False, kw_only=True)
class Tested:
    """A difference between arms, with the result of its registered test.

    Attributes:
        seeds: seeds of the pairs, in the order of `by_run.pairs`; for unpaired runs, seeds of
            either arm.
        by_run: result over seed pairs or unpaired runs, or None if the test could not be run.
        decided: result of the primary test. It equals that of `by_run`, or comes from a test over
            seeds and items if results generalize to new items.
        why_not: why the test could not be run, or "" if it was run.
        margin: equivalence margin; None if it is not set.
        choice: error from hyperparameter selection; None without tuning.
        holm_p: Holm-adjusted p-value of the primary test; None for fewer than five pairs, whose
            results are descriptive only.
        equivalence_holm_p: Holm-adjusted p-value of the two one-sided tests for equivalence.
    """

    seeds: tuple[int, ...]
    by_run: RunContrast | None = None
    decided: Decided | None = None
    why_not: str = ""
    margin: float | None = field(default=None, repr=False)
    choice: Choice | None = None
    holm_p: float | None = None
    equivalence_holm_p: float | None = None

    @property
    def p_values(self) -> dict[str, float | None]:
        """Unadjusted p-values, keyed by the field name of the adjusted p-value."""
        says = self.decided
        p_values = {"holm_p": says.p_value if says else None}
        if self.margin is not None:
            p_values["equivalence_holm_p"] = says.equivalence_p if says else None
        return p_values

    @property
    def tested(self) -> bool:
        """True if an adjusted p-value exists, which requires at least five pairs."""
        return self.holm_p is not None

    @property
    def p(self) -> float | None:
        """Unadjusted p-value of the primary test, or None if no adjusted p-value exists."""
        return self.decided.p_value if self.decided and self.tested else None

    def significant(self, alpha: float) -> bool:
        """Return whether the difference is significant after Holm adjustment."""
        return _rejects(self.holm_p, alpha)

    def equivalent(self, alpha: float) -> bool:
        """Return whether equivalence within the margin is significant after Holm adjustment."""
        return _rejects(self.equivalence_holm_p, alpha)


@dataclass(frozen=True, eq=False, kw_only=True)
class Contrast(Tested):
    """Contrast between an arm and its reference on one metric.

    The family for adjustment is all contrasts on primary endpoints, or on secondary endpoints.

    Attributes:
        declared: definition of the metric.
        counted: whether the contrast is a hypothesis of its family. False if the metric was not
            measured or is not comparable between the arms.
        not_worse_holm_p: Holm-adjusted p-value of the non-inferiority test.
        smallest_effect: smallest effect worth detecting, or None if it is not set.
        checks: results of sensitivity analyses; () for fewer than five pairs.
        items_about: description of the paired items, such as `40 documents`, or "" if items are
            not paired.
        items_why_not: why results cannot generalize to new items as registered, or "" if they can.
        target: description of the target population, such as `this text`, or "".
        counting_diverged: the same contrast, with the worst finite score of both arms imputed for
            diverged runs. None for secondary endpoints, and if no run diverged.
        sampling: seeds included in the analysis, and the look or stages at which they were added.
        censored: number of seeds that did not reach the metric's target, for the arm and for its
            reference.
    """

    arm: str
    reference: str
    metric: str
    primary: bool
    declared: Metric = field(repr=False)
    smallest_effect: float | None = None
    counted: bool = field(default=True, repr=False)
    not_worse_holm_p: float | None = None
    checks: tuple[Check, ...] = ()
    items_about: str = ""
    items_why_not: str = ""
    target: str = field(default="", repr=False)
    counting_diverged: Contrast | None = field(default=None, repr=False)
    sampling: Sampling | None = None
    censored: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        says, words = self.decided, self.why_not
        if says is not None:
            words = self.declared.delta_text(says.mean, says.interval.low, says.interval.high)
            words += f", n = {says.n}"
        words += f", p {numbers.p_value(self.p)}" if self.tested else ""
        return f"Contrast('{self.arm}' - '{self.reference}', {self.metric}: {words})"

    @property
    def p_values(self) -> dict[str, float | None]:
        """Unadjusted p-values, including that of the non-inferiority test.

        Equivalence and non-inferiority are not tested if trials are censored.
        """
        p_values, better, says = super().p_values, self.declared.better, self.decided
        if self.margin is None:
            return p_values
        not_worse = None
        if says is not None and better != "neither":
            edge = -self.margin if better == "higher" else self.margin
            not_worse = says.basis.one_sided_p(edge, greater=better == "higher")
        p_values["not_worse_holm_p"] = not_worse
        if any(self.censored):
            p_values |= {"equivalence_holm_p": None, "not_worse_holm_p": None}
        return p_values

    def not_worse(self, alpha: float) -> bool:
        """Return whether non-inferiority is significant after Holm adjustment."""
        return _rejects(self.not_worse_holm_p, alpha)


@dataclass(frozen=True, eq=False, kw_only=True)
class Interacting(Tested):
    """Interaction on one primary endpoint, adjusted over all interactions.

    Attributes:
        of, than: arms on both sides. The interaction is the mean effect of the arms in `of` minus
            the mean effect of the arms in `than`.
    """

    name: str
    title: str
    of: tuple[str, ...]
    than: tuple[str, ...]
    metric: str
    declared: Metric = field(repr=False)


@dataclass(frozen=True)
class Analysis:
    """Results of the statistical analysis of a study.

    Attributes:
        missing: labels of unfinished trials.
        unregistered: why the records contradict the registration, or "" if they agree.
        edited: keys of descriptive texts edited after registration; `study` has the registered
            texts.
        tasks: contrasts on task accuracy, adjusted over all contrasts and tasks.
        metrics: definitions of all compared metrics, keyed by name.
        own_rule: registered custom decision rule, or {} for a built-in rule.
        untested: why a finished study lacks scores on its test split, or "".
        looks: records of completed interim analyses, as in looks.json.
        reuse: earlier uses of the test text according to the ledger, or None if unknown.
        runs: input files of a study of finished runs, or None for other studies.
        excluded: number of excluded crashed or failed runs, keyed by arm.
    """

    study: Study = field(repr=False)
    missing: tuple[str, ...]
    unregistered: str
    controls: tuple[Control, ...]
    summaries: tuple[Summary, ...]
    contrasts: tuple[Contrast, ...]
    events: dict[tuple[str, int], StabilityEvents]
    stabilities: tuple[Stabilities, ...]
    costs: tuple[Costs, ...]
    tasks: tuple[Contrast, ...]
    left_out: tuple[LeftOut, ...]
    metrics: dict[str, Metric] = field(repr=False)
    own_rule: dict[str, Any] = field(default_factory=dict, repr=False)
    untested: str = ""
    tuned: Tuned | None = None
    looks: tuple[dict[str, Any], ...] = ()
    along: tuple[Along, ...] = ()
    reuse: Reuse | None = None
    runs: RunsRecord | None = field(default=None, repr=False)
    interactions: tuple[Interacting, ...] = ()
    excluded: dict[str, int] = field(default_factory=dict)
    edited: tuple[str, ...] = field(default=(), repr=False)

    @property
    def chosen_on_judged_text(self) -> bool:
        """True if tuning and verdict use scores on the same held-out text."""
        tuning = self.study.tuning
        return tuning is not None and bool(tuning.chosen) and not self.study.facts.seals_test

    @property
    def n_trials(self) -> int:
        """Number of trials that are finished, failed or still needed."""
        return len(self.events) + sum(self.excluded.values()) + len(self.missing)

    def seeds_of(self, arm: str) -> set[int]:
        """Return the seeds of an arm's finished trials, excluding failed trials."""
        return {seed for name, seed in self.events if name == arm}

    def all_diverged(self, arm: str) -> bool:
        """Return whether all finished trials of `arm` diverged, or False if none finished."""
        own = [events for (name, _), events in self.events.items() if name == arm]
        return bool(own) and all(events.diverged for events in own)

    def __repr__(self) -> str:
        count = numbers.plural(len(self.contrasts), "contrast")
        state = f", {len(self.missing)} trials not finished" if self.missing else ""
        return f"Analysis('{self.study.name}': {count}{state})"

    def contrast(self, arm: str, metric: str | None = None) -> Contrast:
        """Return the contrast between `arm` and its reference on one metric.

        Args:
            arm: name of the arm.
            metric: name of the metric; by default the first primary endpoint.

        Raises:
            ParibusError: if the contrast does not exist.
        """
        metric = metric or self.study.primary.metric
        for contrast in self.contrasts:
            if (contrast.arm, contrast.metric) == (arm, metric):
                return contrast
        known = [f"{contrast.arm}, {contrast.metric}" for contrast in self.contrasts]
        wanted = f"{arm}, {metric}"
        raise ParibusError(f"contrast '{wanted}' does not exist; {nearest(wanted, known)}")

    def summary(self, arm: str, metric: str) -> Summary:
        """Return the summary statistics of a compared metric in an arm."""
        return next(s for s in self.summaries if (s.arm, s.metric) == (arm, metric))

    def stability(self, arm: str) -> Stabilities | None:
        """Return the event rates of `arm` and its reference, or None if they share no seed."""
        return next((s for s in self.stabilities if s.arm == arm), None)

    @property
    def unmeasured(self) -> list[str]:
        """Secondary endpoints that no trial measured, such as tasks that were not run."""
        names = [e.metric for e in self.study.endpoints if not e.primary]
        measured = {summary.metric for summary in self.summaries if summary.n}
        return [name for name in names if name not in measured] if measured else []

    def missing_of(self, contrast: Contrast) -> list[str]:
        """Return labels of the unfinished trials that a contrast needs, or [] if it has stopped."""
        sampled = sampling_of(self.study, self.looks, contrast.arm)
        seeds = self.study.seeds if sampled.is_open else sampled.seeds
        arms = (contrast.arm, contrast.reference)
        needed = {f"{arm}/seed-{seed}" for arm in arms for seed in seeds}
        return [label for label in self.missing if label in needed]

    def broken(self, arm: str) -> list[Control]:
        """Return all controls between `arm` and its reference whose state is "broken"."""
        return [c for c in self.controls if c.arm == arm and c.state == "broken"]

    def to_dict(self) -> dict[str, Any]:
        """Return the analysis as a JSON-serializable dict, as stored in `analysis.json`."""
        # The files may move, and what is inferred from them stays: runs.json has their digests.
        runs = self.runs.model_dump(mode="json", exclude={"sha256"}) if self.runs else None
        metrics = {name: metric.metadata for name, metric in self.metrics.items()}
        return plain(self) | {
            "study": self.study.digest,
            "metrics": metrics,
            "events": {"/".join(map(str, trial)): plain(e) for trial, e in self.events.items()},
            "reuse": self.reuse.model_dump(mode="json") if self.reuse else None,
            "runs": runs,
        }
