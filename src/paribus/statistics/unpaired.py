"""Two arms whose runs are no pairs: Welch's t on their means, and what is said besides.

Runs of one arm share nothing with runs of the other, or nobody can say that they do. Each arm is a
sample of its own, of its own size and spread (Welch 1947, Biometrika 34, 28-35); degrees of freedom
are Satterthwaite's (1946, Biometrics Bulletin 2, 110-114). Differences are treatment minus
baseline, as everywhere here.

An arm whose runs are all equal has the spread that its measurement can hide (see `paired`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from .choice import with_choice
from .conventions import (
    ALPHA,
    DESCRIPTIVE_BELOW,
    POWER,
    RESAMPLES,
    TIE,
    Interval,
    Result,
    StatisticsError,
    checked_fraction,
    checked_positive,
    checked_resamples,
    checked_scores,
)
from .crossed import checked_tasks, interaction, require_items, seed_means
from .deciding import Decided, DecidingTest, decided
from .distributions import fisher_exact, noncentrality_interval
from .paired import StudentT, hedges_correction, mean_and_sd, rounding
from .power import MOST_PAIRS, fewest, least_found, require_power, t_power

WELCH, CROSSED_WELCH = "welch_t", "crossed_welch"
MOST_RUNS = 10**6  # a plan that needs more is no plan
ENUMERATE_TO = 20_000  # ways to deal runs to two arms; up to here all are looked at


@dataclass(frozen=True)
class Welch(StudentT):
    """Welch's t of two independent samples.

    Attributes:
        n_baseline, n_treatment: runs of each arm, at least 2.
        baseline, treatment: their means.
        sd_baseline, sd_treatment: their sample SDs (n - 1).
        resolution: of the measurement: the SD of runs that are all equal.
        rounded: whether scores are rounded to the resolution: no SD is then below it.
    """

    n_baseline: int
    n_treatment: int
    baseline: float
    treatment: float
    sd_baseline: float
    sd_treatment: float
    resolution: float
    rounded: bool = False

    @property
    def n(self) -> int:
        """Runs of the arm that has fewer."""
        return min(self.n_baseline, self.n_treatment)

    @property
    def mean(self) -> float:
        """The difference of the means."""
        return self.treatment - self.baseline

    @property
    def constant(self) -> bool:
        """True if neither arm varies."""
        return self.sd_baseline == 0 == self.sd_treatment

    @property
    def _variances(self) -> tuple[float, float]:
        """Squared standard errors of both means."""
        baseline, treatment = self._spreads
        return baseline**2 / self.n_baseline, treatment**2 / self.n_treatment

    @property
    def _spreads(self) -> tuple[float, float]:
        """SDs of both arms, or the resolution if neither varies or rounding hides an SD."""
        least = self.resolution if self.rounded or self.constant else 0.0
        return max(self.sd_baseline, least), max(self.sd_treatment, least)

    @property
    def standard_error(self) -> float:
        """Of the difference."""
        return math.sqrt(sum(self._variances))

    @property
    def df(self) -> float:
        """Satterthwaite's degrees of freedom."""
        return _df(*self._variances, self.n_baseline, self.n_treatment)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the least difference detected with so many runs of these SDs."""
        if self.constant:
            return self.resolution
        return welch_detectable(
            *self._spreads,
            self.n_baseline,
            self.n_treatment,
            power=power,
            alpha=alpha,
        )

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Return the runs of each arm that detect `effect`; None where no number is known to."""
        if self.constant:
            return None
        try:
            return required_runs(effect, *self._spreads, power=power, alpha=alpha)
        except StatisticsError:
            return None


def _df(first: float, second: float, n_first: int, n_second: int) -> float:
    total = first + second
    shares = first / total, second / total  # of the squared error: no square underflows
    return 1 / (shares[0] ** 2 / (n_first - 1) + shares[1] ** 2 / (n_second - 1))


def welch(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    resolution: float | None = None,
    rounded: bool = False,
) -> Welch:
    """Welch's t of scores of shapes (A,) and (B,), A and B >= 2, in one unit.

    Args:
        resolution: of the measurement, where known; by default the scores' own rounding.
        rounded: whether scores are rounded to the resolution, which is then the least SD.
    """
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    least = rounding(first, second)
    if resolution is not None:
        least = max(least, checked_positive(resolution, "resolution"))
    (a, sd_a), (b, sd_b) = (_summary(arm) for arm in (first, second))
    if sd_a == sd_b == 0 and abs(b - a) <= rounding(first, second):
        b = a  # equal but for rounding
    return Welch(first.size, second.size, a, b, sd_a, sd_b, least, rounded)


def _summary(scores: np.ndarray) -> tuple[float, float]:
    if np.ptp(scores) <= rounding(scores):
        return float(np.median(scores)), 0.0
    return mean_and_sd(scores)


def welch_power(
    effect: float,
    sd_baseline: float,
    sd_treatment: float,
    n_baseline: int,
    n_treatment: int,
    *,
    alpha: float = ALPHA,
) -> float:
    """Probability that the two-sided test finds a true difference of `effect`, both tails counted.

    The statistic is taken as noncentral t on the degrees of freedom that follow from the true SDs
    (Moser, Stevens and Watts 1989, Communications in Statistics 18, 3963-3975).
    """
    variances = sd_baseline**2 / n_baseline, sd_treatment**2 / n_treatment
    df, ncp = _df(*variances, n_baseline, n_treatment), abs(effect) / math.sqrt(sum(variances))
    return t_power(df, ncp, alpha)


def welch_detectable(
    sd_baseline: float,
    sd_treatment: float,
    n_baseline: int,
    n_treatment: int,
    *,
    power: float = POWER,
    alpha: float = ALPHA,
) -> float:
    """Return the least difference that so many runs detect with that power."""
    require_power(power, alpha)
    sds = sd_baseline, sd_treatment
    error = math.hypot(sd_baseline / math.sqrt(n_baseline), sd_treatment / math.sqrt(n_treatment))

    def power_at(size: float) -> float:
        return welch_power(size * error, *sds, n_baseline, n_treatment, alpha=alpha)

    return least_found(power_at, power) * error


def required_runs(
    effect: float,
    sd_baseline: float,
    sd_treatment: float,
    *,
    power: float = POWER,
    alpha: float = ALPHA,
) -> int:
    """Return the fewest runs of each arm with which `effect` is detected with that power."""
    effect = checked_positive(abs(effect), "effect")
    power = checked_fraction(power, "power")

    def enough(n: int) -> bool:
        return welch_power(effect, sd_baseline, sd_treatment, n, n, alpha=alpha) >= power

    found = fewest(enough, MOST_PAIRS)
    if found is None:
        raise StatisticsError(
            f"effect = {effect:g} needs more than {MOST_PAIRS} runs: reduce the SD or the claim"
        )
    return found


@dataclass(frozen=True)
class CrossedWelch(StudentT):
    """A macro difference of runs that are no pairs, on items that both arms share, for new items.

    Attributes:
        seeds: Welch's t of the runs' macro means, which takes the items as given.
        n_items: per task.
        item_error: the standard error that the choice of items adds, which more runs cannot reduce.
    """

    seeds: Welch
    n_items: tuple[int, ...]
    item_error: float

    @property
    def n(self) -> int:
        """Runs of the arm that has fewer."""
        return self.seeds.n

    @property
    def mean(self) -> float:
        """The macro difference."""
        return self.seeds.mean

    @property
    def constant(self) -> bool:
        """True if nothing varies, neither over runs nor over items."""
        return self.seeds.constant and not self.item_error

    @property
    def standard_error(self) -> float:
        """Of the macro difference."""
        return math.hypot(self.seeds.standard_error, self.item_error)

    @property
    def df(self) -> float:
        """Degrees of freedom of t: those of the runs, or of the items where these are fewer."""
        return min(self.seeds.df, self._item_df)

    @property
    def _item_df(self) -> int:
        return sum(n - 1 for n in self.n_items)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the least macro difference detected with that power, given this error."""
        return self.standard_error * _noncentrality(self.df, power, alpha)

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Return the runs of each arm that detect `effect` with these items; None where no number
        does."""
        squares = self.seeds.sd_baseline**2 + self.seeds.sd_treatment**2

        def enough(n: int) -> bool:
            df = min(self.seeds.df * (n - 1) / (self.n - 1), self._item_df)
            error = math.hypot(math.sqrt(squares / n), self.item_error)
            return error * _noncentrality(max(df, 1.0), power, alpha) <= effect

        return fewest(enough, MOST_RUNS)


def _noncentrality(df: float, power: float, alpha: float) -> float:
    """Return the effect in standard errors that a two-sided t on `df` detects with that power."""
    return least_found(lambda ncp: t_power(df, ncp, alpha), power)


def crossed_welch(
    baseline: Sequence[ArrayLike],
    treatment: Sequence[ArrayLike],
    *,
    resolution: float | None = None,
) -> CrossedWelch:
    """Macro difference over tasks with the errors of runs and of items, as `crossed_components`.

    Items are paired, runs are not: the squared error is Welch's of the runs' macro means, and b/I
    of every task, with b the variance over items of the difference of means, less what runs add.

    Args: K tasks of shapes (A, I_k) and (B, I_k), A and B >= 2, of the same items in one order.
    """
    first, second = checked_tasks(baseline), checked_tasks(treatment)
    sizes = [task.shape[1] for task in first]
    if sizes != [task.shape[1] for task in second]:
        raise StatisticsError("arms differ in their items, which both must have in one order")
    require_items(first)
    total = 0.0
    for theirs, ours in zip(first, second, strict=True):
        n_items = theirs.shape[1]
        if n_items < 2:
            continue
        within = sum(interaction(task) / task.shape[0] for task in (theirs, ours))
        between = float((ours.mean(0) - theirs.mean(0)).var(ddof=1))
        total += max(0.0, between - within) / n_items
    means = [seed_means(tasks) for tasks in (first, second)]
    return CrossedWelch(
        welch(*means, resolution=resolution), tuple(sizes), math.sqrt(total) / len(first)
    )


@dataclass(frozen=True)
class Permutation(Result):
    """p of a permutation test, and the least p that so many runs could have given."""

    p_value: float
    floor: float
    enumerated: bool


def permutation(
    baseline: ArrayLike, treatment: ArrayLike, *, seed: int, resamples: int = RESAMPLES
) -> Permutation:
    """Permutation test of the difference of means (Fisher 1935; Pitman 1937), two-sided.

    Where the arms do not differ, every way to deal the runs to them is as likely. All ways are
    looked at up to 20,000 of them (7 runs against 7), else seeded ones.
    """
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    resamples = checked_resamples(resamples)
    pooled = np.concatenate([first, second])
    centre = math.fsum(pooled) / pooled.size
    pooled = (pooled - centre) / (float(np.abs(pooled - centre).max()) or 1.0)
    n, total = second.size, pooled.size
    observed = abs(float(pooled[first.size :].sum()))
    ways = math.comb(total, n)
    enumerated = ways <= ENUMERATE_TO
    if enumerated:
        dealt = np.fromiter(
            itertools.chain.from_iterable(itertools.combinations(range(total), n)), np.intp
        ).reshape(-1, n)
        sums, counted = pooled[dealt].sum(axis=1), 0
    else:
        rng = np.random.default_rng(seed)
        sums = rng.permuted(np.broadcast_to(pooled, (resamples, total)), axis=1)[:, :n].sum(axis=1)
        counted = 1
    exceeding = int((np.abs(sums) >= observed - TIE * total).sum()) + counted
    least = (2 if n == first.size else 1) / ways  # both labellings of one split are as extreme
    drawn = len(sums) + counted
    return Permutation(exceeding / drawn, max(least, counted / drawn), enumerated)


@dataclass(frozen=True)
class UnpairedContrast(Result):
    """Treatment minus baseline over runs that are no pairs. None marks what does not exist.

    Attributes:
        n: runs of the arm that has fewer.
        descriptive_only: an arm has fewer than 5 runs: no claim rests on the p.
        decided: what Welch's t says; `t` and `df` are its.
        sd: pooled over both arms.
        g: Hedges' g, the difference over the pooled SD without its bias (Hedges 1981); with the
            interval of the pooled t's noncentrality, from 5 runs of each arm.
        values: scores of each arm, in the order given.
    """

    n: int
    n_baseline: int
    n_treatment: int
    descriptive_only: bool
    constant: bool
    mean: float
    sd: float
    sd_baseline: float
    sd_treatment: float
    decided: Decided
    t: float | None
    df: float
    g: float | None
    g_interval: Interval | None
    permutation_p: float
    permutation_floor: float
    margin: float | None
    values: tuple[tuple[float, ...], tuple[float, ...]]
    alpha: float
    seed: int
    resolution: float
    choice: float
    test: DecidingTest = field(repr=False, compare=False)

    @property
    def others(self) -> dict[str, float]:
        """p by the test that did not decide; what it says knows nothing of a choice."""
        return {} if self.choice else {"permutation": self.permutation_p}

    @property
    def least(self) -> dict[str, float]:
        """The least p that it could have given."""
        return {"permutation": self.permutation_floor}


def unpaired_contrast(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    seed: int,
    margin: float | None = None,
    alpha: float = ALPHA,
    family: int = 1,
    power: float = POWER,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    rounded: bool = False,
    choice: float = 0.0,
) -> UnpairedContrast:
    """Everything a report states about one contrast of two arms whose runs are no pairs.

    Args: baseline, treatment: scores of shapes (A,) and (B,), both of at least 2 runs.
    Others as `paired_contrast` has them.
    """
    alpha = checked_fraction(alpha, "alpha")
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    plain = welch(first, second, resolution=resolution, rounded=rounded)
    test = with_choice(plain, plain.standard_error, choice)
    says = decided(test, WELCH, margin=margin, alpha=alpha, family=family, power=power)
    dealt = permutation(first, second, seed=seed, resamples=resamples)
    df = first.size + second.size - 2
    pooled = math.sqrt(
        ((first.size - 1) * plain.sd_baseline**2 + (second.size - 1) * plain.sd_treatment**2) / df
    )
    g = g_interval = None
    if pooled:
        root = math.sqrt(first.size * second.size / (first.size + second.size))
        scale = hedges_correction(df) / root
        g = scale * root * plain.mean / pooled
        if plain.n >= DESCRIPTIVE_BELOW:
            ends = noncentrality_interval(root * plain.mean / pooled, df, 1 - alpha)
            g_interval = Interval(scale * ends[0], scale * ends[1], 1 - alpha)
    return UnpairedContrast(
        n=plain.n,
        n_baseline=plain.n_baseline,
        n_treatment=plain.n_treatment,
        descriptive_only=says.descriptive_only,
        constant=plain.constant,
        mean=plain.mean,
        sd=pooled,
        sd_baseline=plain.sd_baseline,
        sd_treatment=plain.sd_treatment,
        decided=says,
        t=None if plain.constant else plain.mean / math.hypot(plain.standard_error, choice),
        df=plain.df,
        g=g,
        g_interval=g_interval,
        permutation_p=dealt.p_value,
        permutation_floor=dealt.floor,
        margin=margin,
        values=(tuple(first.tolist()), tuple(second.tolist())),
        alpha=alpha,
        seed=seed,
        resolution=plain.resolution,
        choice=choice,
        test=test,
    )


@dataclass(frozen=True)
class UnpairedMacro(Result):
    """A macro difference for new items, of runs that are no pairs; `by_seed` takes them as given.

    Attributes:
        crossed: what decides.
    """

    target: str
    mean: float
    decided: Decided
    by_seed: UnpairedContrast
    crossed: CrossedWelch
    test: DecidingTest = field(repr=False, compare=False)

    @property
    def others(self) -> dict[str, float]:
        """p by the test that did not decide."""
        return {"Welch's t on these items alone": self.by_seed.decided.p_value}


def unpaired_macro(
    baseline: Sequence[ArrayLike],
    treatment: Sequence[ArrayLike],
    *,
    seed: int,
    margin: float | None = None,
    alpha: float = ALPHA,
    family: int = 1,
    power: float = POWER,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    choice: float = 0.0,
) -> UnpairedMacro:
    """Macro-averaged scores of runs that are no pairs, paired by item, for a claim about new items.

    Args: baseline, treatment: as `crossed_welch` has them. Others as `paired_contrast` has them.
    """
    about = {"margin": margin, "alpha": alpha, "family": family, "power": power}
    crossed = crossed_welch(baseline, treatment, resolution=resolution)
    by_seed = unpaired_contrast(
        seed_means(baseline),
        seed_means(treatment),
        seed=seed,
        resamples=resamples,
        resolution=resolution,
        choice=choice,
        **about,
    )
    test = with_choice(crossed, crossed.standard_error, choice, crossed.item_error)
    says = decided(test, CROSSED_WELCH, **about)
    return UnpairedMacro("new items", crossed.mean, says, by_seed, crossed, test)


@dataclass(frozen=True)
class UnpairedRates(Result):
    """Counts of runs that an event struck, in two arms whose runs are no pairs; Fisher's exact p
    (Fisher 1935), two-sided."""

    n_baseline: int
    n_treatment: int
    baseline_events: int
    treatment_events: int
    p_value: float

    @property
    def n(self) -> int:
        """Runs of the arm that has fewer."""
        return min(self.n_baseline, self.n_treatment)

    @property
    def baseline_rate(self) -> float:
        """Share of the baseline's runs that had the event."""
        return self.baseline_events / self.n_baseline

    @property
    def treatment_rate(self) -> float:
        """Share of the treatment's runs that had the event."""
        return self.treatment_events / self.n_treatment


def unpaired_event_rates(baseline: ArrayLike, treatment: ArrayLike) -> UnpairedRates:
    """Compare how often an event strikes two arms whose runs are no pairs.

    Args: booleans (or 0 and 1) of shapes (A,) and (B,), each of at least one run.
    """
    arms = [np.asarray(arm, dtype=np.float64) for arm in (baseline, treatment)]
    if any(arm.ndim != 1 or not arm.size or not np.isin(arm, (0, 1)).all() for arm in arms):
        raise StatisticsError("events are not all 0 or 1: pass booleans, one per run of each arm")
    (a, n_a), (b, n_b) = ((int(arm.sum()), arm.size) for arm in arms)
    return UnpairedRates(n_a, n_b, a, b, fisher_exact(a, b, n_a, n_b))
