"""Contrasts between two arms: primary test, estimates, and sensitivity analyses.

A single `TTest` object provides the p-value, intervals, equivalence test and detectable effect, so
that these are always consistent. Interim analyses and second stages wrap the same object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from .conventions import ALPHA, DESCRIPTIVE_BELOW, POWER, RESAMPLES, Interval
from .crossed import crossed_bootstrap, crossed_components
from .looks import OneLook
from .power import noncentral_t_cdf, root
from .resampling import paired_bootstrap, sign_flip
from .stages import Stages
from .t_test import TTest, arm_summary, least_sd, mean_and_sd, paired_deltas, paired_t, welch

LARGEST_T = 1e3  # beyond it the noncentral t is inexact in double precision
INTERVAL_FROM = 3  # pairs, or runs of each arm
SIGN_FLIP = range(6, 21)  # pairs; with fewer its least p is above 5%, with more it is too slow
# Pairs from which the studentized bootstrap may contradict the t test. With few pairs it is erratic
# (Efron and Tibshirani 1993, 12.5): on normal differences that the t test detects with 80% power,
# it contradicts the t test in 25% of samples at 5 pairs, and in 12% at 10.
BOOTSTRAP_FROM = 10

Design = OneLook | Stages | None  # None: all pairs are one sample of a size that was fixed


@dataclass(frozen=True)
class Decided:
    """Results of the primary test of one contrast.

    Attributes:
        test: `paired_t`, `welch_t`, `crossed_components` or `crossed_bootstrap`.
        n: number of pairs, or of runs in the smaller arm.
        constant: whether all differences are equal. The p-value and interval are then based on
            the resolution of the measurement.
        mean: mean difference.
        p_value: two-sided p-value for a mean difference of 0.
        interval: confidence interval at level 1 - alpha; excludes 0 if and only if
            p_value <= alpha.
        family: number of hypotheses in the family.
        equivalence_interval: confidence interval at level 1 - 2 alpha; lies within the margin if
            and only if equivalence_p <= alpha.
        margin: equivalence margin, or None.
        equivalence_p: p-value of the two one-sided tests for equivalence; None without a margin.
        detectable: minimum detectable effect at the requested power and level alpha / family.
        basis: the test object, from which other quantities can be computed.
    """

    test: str
    n: int
    constant: bool
    mean: float
    p_value: float
    interval: Interval
    family: int
    equivalence_interval: Interval
    margin: float | None
    equivalence_p: float | None
    detectable: float
    basis: TTest = field(repr=False, compare=False)

    @property
    def descriptive_only(self) -> bool:
        """True if there are too few pairs or runs for a test."""
        return self.n < DESCRIPTIVE_BELOW

    @property
    def has_interval(self) -> bool:
        """True if there are enough pairs or runs for a confidence interval."""
        return self.n >= INTERVAL_FROM


def decided(
    test: TTest,
    name: str,
    *,
    margin: float | None = None,
    alpha: float = ALPHA,
    family: int = 1,
    power: float = POWER,
) -> Decided:
    """Compute the p-values, intervals and detectable effect of a test.

    Equivalence is tested by two one-sided tests (Schuirmann 1987).

    Args:
        test: the test.
        name: name of the test, as in `Decided.test`.
        margin: equivalence margin in the unit of the scores; None for no equivalence test.
        alpha: two-sided significance level.
        family: number of hypotheses in the family; the detectable effect is computed at level
            alpha / family.
        power: power at which the detectable effect is computed.
    """
    equivalence_p = None
    if margin is not None:
        ends = ((-margin, True), (margin, False))
        equivalence_p = max(test.one_sided_p(end, greater=greater) for end, greater in ends)
    return Decided(
        test=name,
        n=test.n,
        constant=test.constant,
        mean=test.mean,
        p_value=test.p_value(),
        interval=test.interval(1 - alpha),
        family=family,
        equivalence_interval=test.interval(1 - 2 * alpha),
        margin=margin,
        equivalence_p=equivalence_p,
        detectable=test.detectable(power=power, alpha=alpha / family),
        basis=test,
    )


def hedges_g(mean: float, sd: float, df: int) -> float | None:
    """Return Hedges' g, the bias-corrected standardized mean difference (Hedges 1981).

    Uses the exact correction, not the approximation 1 - 3/(4 df - 1). Returns None if the SD is 0,
    and an uninformative 0 for one degree of freedom.
    """
    if not sd:
        return None
    correction = scipy.special.poch((df - 1) / 2, 0.5) / math.sqrt(df / 2)
    return float(correction) * mean / sd


@dataclass(frozen=True)
class Pair:
    """Scores of both arms at one seed, and their difference."""

    baseline: float
    treatment: float
    delta: float


@dataclass(frozen=True)
class RunContrast:
    """Results for treatment minus baseline, over seed pairs or unpaired runs.

    Attributes:
        n: number of pairs, or of runs in the smaller arm.
        mean, sd: mean and SD of the differences; for unpaired runs, the SD is pooled over arms.
        decided: results of the primary test.
        g: standardized mean difference (Hedges' g); None if the SD is 0.
        others: {test: (p-value, smallest possible p-value)} of sensitivity analyses; {} for
            interim analyses, two-stage designs and unpaired runs. The smallest p-value is 1 for a
            test that is unreliable at this number of pairs.
        percentile_interval: percentile interval of the paired bootstrap, which is descriptive
            only, because its coverage is too low for few pairs.
        pairs: the seed pairs; () for unpaired runs.
        runs: number of runs of each arm (baseline, treatment); () for pairs.
    """

    n: int
    mean: float
    sd: float
    decided: Decided
    g: float | None
    others: dict[str, tuple[float, float]] = field(default_factory=dict)
    percentile_interval: Interval | None = None
    pairs: tuple[Pair, ...] = ()
    runs: tuple[int, ...] = ()

    def g_interval(self, level: float = 1 - ALPHA) -> Interval | None:
        """Return a confidence interval for `g` from the noncentral t distribution.

        The method is that of Steiger and Fouladi (1997). Returns None for fewer than five pairs or
        a negligible SD.
        """
        size = 1 / sum(1 / runs for runs in self.runs) if self.runs else self.n
        df, t = sum(self.runs or [self.n + 1]) - 2, math.inf
        if self.sd:
            t = self.mean / self.sd * math.sqrt(size)
        unit = hedges_g(1.0, math.sqrt(size), df)
        if self.n < DESCRIPTIVE_BELOW or unit is None or abs(t) > LARGEST_T:
            return None
        reach, within = 10 + 8 * abs(t), 1e-4 * (1 + abs(t))

        def end(p: float) -> float:
            return unit * root(
                lambda ncp: noncentral_t_cdf(t, df, ncp) - p, t - reach, t + reach, within
            )

        return Interval(end((1 + level) / 2), end((1 - level) / 2))


def paired_contrast(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    design: Design = None,
    choice: float = 0.0,
    **asked: Any,
) -> RunContrast:
    """Compare two arms that were run on the same seeds.

    Args:
        baseline, treatment: scores of shape (S,), S >= 2, in the same unit and order of seeds.
        seed: seed of the bootstrap.
        resamples: number of bootstrap resamples.
        resolution: resolution of the measurement if coarser than floating point, such as 1 / I for
            a fraction of I items. It is used if all differences are equal.
        design: interim analysis or two-stage design, or None for a fixed sample size. Pairs of the
            first stage come first. The design affects only the primary test.
        choice: standard error due to hyperparameter selection.
        asked: margin, alpha, family and power, as in `decided`.

    Raises:
        StatisticsError: for fewer than two pairs, non-finite scores or unequal lengths.
    """
    deltas = paired_deltas(baseline, treatment)
    first, second = np.asarray(baseline, float), np.asarray(treatment, float)
    floor = least_sd(resolution, first, second)

    def test_of(part: slice) -> TTest:
        return paired_t(deltas[part], resolution=floor, choice=choice)

    overall = test_of(slice(None))
    test = design.decide(test_of) if design else overall
    p_of_bootstrap, percentiles = paired_bootstrap(
        deltas,
        seed=seed,
        resamples=resamples,
        resolution=floor,
        choice=choice,
        level=1 - asked.get("alpha", ALPHA),
    )
    others = {}
    if design is None:
        floor_p = 0.0 if overall.n >= BOOTSTRAP_FROM else 1.0
        others["studentized bootstrap"] = p_of_bootstrap, floor_p
        if overall.n in SIGN_FLIP and not choice:  # signs know nothing of a choice
            others["exact sign flip"] = sign_flip(deltas)
    n, sd = overall.n, mean_and_sd(deltas)[1]
    pairs = zip(first.tolist(), second.tolist(), deltas.tolist(), strict=True)
    return RunContrast(
        n=n,
        mean=overall.mean,
        sd=sd,
        decided=decided(test, "paired_t", **asked),
        g=hedges_g(overall.mean, sd, n - 1),
        others=others,
        percentile_interval=percentiles,
        pairs=tuple(Pair(*pair) for pair in pairs),
    )


def unpaired_contrast(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    resolution: float | None = None,
    **asked: Any,
) -> RunContrast:
    """Compare two arms with unpaired runs.

    Args:
        baseline, treatment: scores of shapes (A,) and (B,), A and B >= 2, in the same unit.
        resolution: see `paired_contrast`.
        asked: margin, alpha, family and power, as in `decided`.
    """
    arms = np.asarray(baseline, float), np.asarray(treatment, float)
    test = welch(*arms, resolution=resolution)
    (n_a, n_b), sds = (arm.size for arm in arms), [arm_summary(arm)[1] for arm in arms]
    df = n_a + n_b - 2
    pooled = math.sqrt(((n_a - 1) * sds[0] ** 2 + (n_b - 1) * sds[1] ** 2) / df)
    return RunContrast(
        n=test.n,
        mean=test.mean,
        sd=pooled,
        decided=decided(test, "welch_t", **asked),
        g=hedges_g(test.mean, pooled, df),
        runs=(n_a, n_b),
    )


def macro_contrast(
    baseline: Sequence[ArrayLike],
    treatment: Sequence[ArrayLike],
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    design: Design = None,
    choice: float = 0.0,
    crossed: Literal["components", "bootstrap"] = "components",
    **asked: Any,
) -> Decided:
    """Compare scores that are macro-averaged over tasks, generalizing to new items.

    The test is never less conservative than the paired t-test of seed means. To generalize only to
    new seeds, pass `seed_means` to `paired_contrast`.

    Args:
        baseline, treatment: scores of K tasks, each of shape (S, I_k), with the same seeds and
            items in both arms.
        crossed: how the combined error of seeds and items is estimated.
        seed, resamples, resolution, design, choice, asked: see `paired_contrast`.
    """
    deltas = [np.subtract(ours, theirs) for theirs, ours in zip(baseline, treatment, strict=True)]

    def test_of(part: slice) -> TTest:
        tasks = [task[part] for task in deltas]
        if crossed == "components":
            return crossed_components(tasks, resolution=resolution, choice=choice)
        drawn = {"seed": seed, "resamples": resamples}
        return crossed_bootstrap(tasks, **drawn, resolution=resolution, choice=choice)

    test = design.decide(test_of) if design else test_of(slice(None))
    return decided(test, f"crossed_{crossed}", **asked)
