"""Data classes of an analysis, the content of analysis.json."""

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
    """Values of one metric in one arm, keyed by seed, for finished trials with a finite value."""

    arm: str
    metric: str
    values: dict[int, float]

    @property
    def n(self) -> int:
        """Number of trials with a finite value."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """Mean over these trials, in the metric's unit; None if none exist."""
        return fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample SD (n - 1); None for fewer than two trials."""
        return stdev(self.values.values()) if self.n > 1 else None


BudgetState = Literal["within", "over", "not shown"]


@dataclass(frozen=True)
class Stabilities:
    """Rates of divergence and spikes in an arm and its reference.

    They cover the seeds that both arms have finished, or all runs if runs are unpaired.

    Attributes:
        holm_p: p of `any_event` by McNemar's test (Fisher's if runs are unpaired), valid over
            all looks or stages and Holm-adjusted over the contrasts; None for fewer than five
            pairs or runs.
    """

    arm: str
    reference: str
    diverged: EventRates
    spiked: EventRates
    any_event: EventRates
    holm_p: float | None = None


@dataclass(frozen=True)
class Cost:
    """Mean cost over seed pairs, with its interval.

    Attributes:
        interval: confidence interval at level 1 - alpha.
        state: whether the cost is within the registered budget, judged by the interval at level
            1 - 2 alpha; None if there is no budget. Fewer than five pairs are "not shown".
    """

    mean: float
    interval: Interval
    state: BudgetState | None = None


@dataclass(frozen=True)
class Costs:
    """An arm's costs besides quality, compared with its reference.

    A cost is None for fewer than two seed pairs.

    Attributes:
        calibration: increase in the expected calibration error.
        throughput: lost share of training tokens per second.
        in_turn: whether `throughput` was timed with arms taking turns. If not, it compares
            training times, which include other load on the machine.
        prefill, decoding: lost share of tokens per second when reading full windows and when
            writing token by token, timed with arms taking turns.
        more_parameters, more_flops, more_memory: relative increase over the reference in
            parameters, training FLOPs and training memory; None if trials do not record them.
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
    """A seed that was excluded from a contrast, and the reason."""

    arm: str
    reference: str
    metric: str
    seed: int
    why: str


@dataclass(frozen=True)
class Check:
    """Result of a sensitivity analysis: a test other than the deciding one.

    Attributes:
        holm_p: p adjusted over the same family by Holm's method.
        disagrees: whether its conclusion differs from the deciding test's.
    """

    test: str
    p_value: float
    holm_p: float
    disagrees: bool


def _rejects(p: float | None, alpha: float) -> bool:
    return p is not None and p <= alpha


@dataclass(frozen=True, eq=False, kw_only=True)
class Tested:
    """A difference with the result of its registered test, or the reason why it has none.

    Attributes:
        seeds: seeds of the pairs, in the order of `by_run.pairs`; seeds of either arm if runs
            are unpaired.
        by_run: the result over seed pairs or over unpaired runs; if None, `why_not` says why.
        decided: the deciding result: that of `by_run`, or of a test over seeds and items
            (questions, documents or blocks) if the claim is about new items.
        margin: largest difference that is too small to matter.
        choice: the error due to tuning the arms' values; None if nothing was tuned.
        holm_p: p of the deciding test, Holm-adjusted over its family; None for fewer than five
            pairs, which are only described.
        equivalence_holm_p: p of the two one-sided tests against the margin, also Holm-adjusted.
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
        """Unadjusted p-values, keyed by the field that holds the adjusted p."""
        says = self.decided
        p_values = {"holm_p": says.p_value if says else None}
        if self.margin is not None:
            p_values["equivalence_holm_p"] = says.equivalence_p if says else None
        return p_values

    @property
    def tested(self) -> bool:
        """True if a p-value is reported; fewer than five pairs are only described."""
        return self.holm_p is not None

    @property
    def p(self) -> float | None:
        """Unadjusted p of the deciding test; None if untested.

        The interval inverts the same test.
        """
        return self.decided.p_value if self.decided and self.tested else None

    def significant(self, alpha: float) -> bool:
        """Return whether the difference is significant, after adjustment."""
        return _rejects(self.holm_p, alpha)

    def equivalent(self, alpha: float) -> bool:
        """Return whether the difference is shown to lie inside the margin, after adjustment."""
        return _rejects(self.equivalence_holm_p, alpha)


@dataclass(frozen=True, eq=False, kw_only=True)
class Contrast(Tested):
    """Contrast between an arm and its reference on one metric.

    Its family is all contrasts on primary endpoints, or all contrasts on secondary endpoints.

    Attributes:
        declared: the metric's label, unit, direction and digits.
        counted: whether it counts as a hypothesis of its family. It does not if the metric was
            not measured, or has a different meaning in each arm.
        not_worse_holm_p: adjusted p of the non-inferiority test, against a loss of the
            margin's size.
        smallest_effect: the smallest change worth detecting; None if none is registered.
        checks: results of the sensitivity analyses; () for fewer than five pairs.
        items_about: description of the paired items, such as `40 documents`; "" if items are
            not paired.
        items_why_not: why a registered claim about new items could not be tested, or "".
        target: scope of the claim besides new seeds, such as `this text`, or "".
        counting_diverged: the same contrast with diverged runs counted at the worst finite
            score of both arms. It is None for a secondary endpoint, and if no run diverged or
            no score is finite.
        sampling: the seeds that count, and the look or stages by which they were sampled.
        censored: number of seeds of the arm, and of its reference, that never reached the
            metric's target.
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

        The distance to a censored trial is unknown, so a contrast with censored trials shows
        neither equivalence nor non-inferiority.
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
        """Return whether a loss of the margin's size is excluded, after adjustment."""
        return _rejects(self.not_worse_holm_p, alpha)


@dataclass(frozen=True, eq=False, kw_only=True)
class Interacting(Tested):
    """Difference between effects on one primary endpoint, adjusted over all interactions.

    Attributes:
        of, than: the arms on both sides. The difference is the mean effect of `of` minus the
            mean effect of `than`.
    """

    name: str
    title: str
    of: tuple[str, ...]
    than: tuple[str, ...]
    metric: str
    declared: Metric = field(repr=False)


@dataclass(frozen=True)
class Analysis:
    """Everything inferred from the records of a study.

    Attributes:
        missing: labels of trials that are not finished.
        unregistered: how the records contradict the registration, or "" if they agree.
        edited: keys of descriptive texts edited after registration; `study` has the registered
            texts.
        tasks: contrasts in accuracy on each task, adjusted over all tasks of all contrasts.
        metrics: all compared metrics, by name.
        own_rule: the registered custom decision rule, or {} if the rule is built-in.
        chosen_on_judged_text: whether the arms were tuned on the text on which they are judged.
        untested: why scores are not from the sealed test part although every trial is finished,
            or "".
        looks: the looks taken so far, as in looks.json.
        reuse: the ledger's entry on the test text when it was opened; None if no ledger was
            consulted.
        runs: the files of finished runs by other programs; None for other studies.
        excluded: {arm: number of crashed or failed runs that the study excludes}.
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
    chosen_on_judged_text: bool = False
    tuned: Tuned | None = None
    looks: tuple[dict[str, Any], ...] = ()
    along: tuple[Along, ...] = ()
    reuse: Reuse | None = None
    runs: RunsRecord | None = field(default=None, repr=False)
    interactions: tuple[Interacting, ...] = ()
    excluded: dict[str, int] = field(default_factory=dict)
    edited: tuple[str, ...] = field(default=(), repr=False)

    @property
    def n_trials(self) -> int:
        """Number of trials that are finished, failed or still needed."""
        return len(self.events) + sum(self.excluded.values()) + len(self.missing)

    def seeds_of(self, arm: str) -> set[int]:
        """Return the seeds of an arm's finished trials, excluding failed trials."""
        return {seed for name, seed in self.events if name == arm}

    def all_diverged(self, arm: str) -> bool:
        """Return whether every finished trial of `arm` diverged, so that none can be compared."""
        own = [events for (name, _), events in self.events.items() if name == arm]
        return bool(own) and all(events.diverged for events in own)

    def __repr__(self) -> str:
        count = numbers.plural(len(self.contrasts), "contrast")
        state = f", {len(self.missing)} trials not finished" if self.missing else ""
        return f"Analysis('{self.study.name}': {count}{state})"

    def contrast(self, arm: str, metric: str | None = None) -> Contrast:
        """Return the contrast between `arm` and its reference on one metric.

        Args:
            metric: by default the primary endpoint.

        Raises ParibusError if there is no such contrast.
        """
        metric = metric or self.study.primary.metric
        for contrast in self.contrasts:
            if (contrast.arm, contrast.metric) == (arm, metric):
                return contrast
        known = [f"{contrast.arm}, {contrast.metric}" for contrast in self.contrasts]
        wanted = f"{arm}, {metric}"
        raise ParibusError(f"there is no contrast '{wanted}'; {nearest(wanted, known)}")

    def summary(self, arm: str, metric: str) -> Summary:
        """Return the summary of `arm` on `metric`, which must be one of `metrics`."""
        return next(s for s in self.summaries if (s.arm, s.metric) == (arm, metric))

    def stability(self, arm: str) -> Stabilities | None:
        """Return the event rates of `arm` and its reference, or None if they share no seed."""
        return next((s for s in self.stabilities if s.arm == arm), None)

    @property
    def unmeasured(self) -> list[str]:
        """Secondary endpoints without a value in any trial, such as tasks that were not run."""
        names = [e.metric for e in self.study.endpoints if not e.primary]
        measured = {summary.metric for summary in self.summaries if summary.n}
        return [name for name in names if name not in measured] if measured else []

    def missing_of(self, contrast: Contrast) -> list[str]:
        """Return labels of the unfinished trials that the contrast still needs.

        A contrast that has stopped needs none.
        """
        sampled = sampling_of(self.study, self.looks, contrast.arm)
        seeds = self.study.seeds if sampled.is_open else sampled.seeds
        arms = (contrast.arm, contrast.reference)
        needed = {f"{arm}/seed-{seed}" for arm in arms for seed in seeds}
        return [label for label in self.missing if label in needed]

    def broken(self, arm: str) -> list[Control]:
        """Return controls between `arm` and its reference that did not hold."""
        return [c for c in self.controls if c.arm == arm and c.state == "broken"]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `analysis.json` as plain JSON types."""
        # The files may move, and what is inferred from them stays: runs.json has their digests.
        runs = self.runs.model_dump(mode="json", exclude={"sha256"}) if self.runs else None
        metrics = {name: metric.about for name, metric in self.metrics.items()}
        return plain(self) | {
            "study": self.study.digest,
            "metrics": metrics,
            "events": {"/".join(map(str, trial)): plain(e) for trial, e in self.events.items()},
            "reuse": self.reuse.model_dump(mode="json") if self.reuse else None,
            "runs": runs,
        }
