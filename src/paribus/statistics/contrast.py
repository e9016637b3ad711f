"""Contrasts of two arms: the deciding test, its estimates and sensitivity analyses.

A single test object provides the p-value, intervals, equivalence and detectable effect, so that
these always agree. `t_test` and `crossed` provide the tests; a look or stages wrap them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from .conventions import ALPHA, DESCRIPTIVE_BELOW, POWER, RESAMPLES, Interval, checked_scores
from .crossed import crossed_bootstrap, crossed_components
from .looks import OneLook
from .power import noncentral_t_cdf, root
from .resampling import paired_bootstrap, sign_flip
from .stages import Stages
from .t_test import TTest, arm_summary, least_sd, mean_and_sd, paired_deltas, paired_t, welch

LARGEST_T = 1e3  # beyond it the noncentral t is inexact in double precision
INTERVAL_FROM = 3  # pairs, or runs of each arm
SIGN_FLIP_FROM = 6  # pairs; with fewer its least p is above 5%

Design = OneLook | Stages | None  # None: all pairs are one sample of a size that was fixed


@dataclass(frozen=True)
class Decided:
    """Results of the deciding test of one contrast.

    Attributes:
        test: `paired_t`, `welch_t`, `crossed_components` or `crossed_bootstrap`.
        constant: True if nothing varies. Then p is the smallest that the measurement's
            resolution allows, and the interval is a point up to that resolution.
        interval: interval at level 1 - alpha; excludes 0 exactly if p_value <= alpha.
        family: number of hypotheses tested together.
        equivalence_interval: interval at level 1 - 2 alpha; lies within the margin exactly if
            equivalence_p <= alpha.
        equivalence_p: p of two one-sided tests against the margin; None without a margin.
        detectable: the smallest effect detected at the requested power and level alpha / family.
        basis: the test itself, from which other quantities can be computed.
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
        """True if there are too few pairs or runs to test, so that they are only described."""
        return self.n < DESCRIPTIVE_BELOW

    @property
    def has_interval(self) -> bool:
        """True if intervals are reported; two pairs or runs are too few for them."""
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
    """Compute the p-values, intervals and detectable effect of `test`.

    Equivalence is tested by two one-sided tests (Schuirmann 1987).

    Args:
        name: name of the test, as in `Decided.test`.
        margin: largest difference too small to matter, in the scores' unit; None for no
            equivalence test.
        alpha: two-sided level.
        family: number of hypotheses tested together, including this one; the detectable effect is
            at level alpha / family.
        power: power with which the detectable effect is detected.
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
    """Return Hedges' g, a bias-corrected difference in SDs (Hedges 1981); None if the SD is 0.

    The correction is exact, not the approximation 1 - 3/(4 df - 1). With one degree of freedom g
    is 0 and carries no information.
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
    """Treatment minus baseline over seed pairs, or over unpaired runs.

    `decided` has the results of the registered test. Everything else is additional.

    Attributes:
        n: number of pairs, or of runs in the smaller arm.
        mean, sd: mean and SD of the differences; the SD of unpaired runs is pooled over both arms.
        g: the difference in SDs (Hedges' g); None if nothing varies.
        others: {test: (p, smallest possible p at this number of pairs)} for tests that did not
            decide; {} for looks, stages and unpaired runs.
        percentile_interval: interval of the paired bootstrap; only descriptive, because its
            coverage is too low with few pairs.
        pairs: the seed pairs; () if runs are unpaired.
        runs, sds: number of runs and SD of the baseline and of the treatment, if runs are
            unpaired.
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
    sds: tuple[float, ...] = ()

    def g_interval(self, level: float = 1 - ALPHA) -> Interval | None:
        """Return the confidence interval of `g`, by inverting the noncentral t.

        Returns None for fewer than five pairs, or if almost nothing varies. The method is that of
        Steiger and Fouladi (1997).
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

        return Interval(end((1 + level) / 2), end((1 - level) / 2), level)


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
    """Compare two arms run on the same seeds.

    Args:
        baseline, treatment: scores of shape (S,), S >= 2, entry s of both from seed s; same unit.
        seed: seed for resampling (above 7 pairs) and for sign flips (above 20).
        resolution: smallest difference that the measurement can show, if coarser than floating
            point: a step of 1 / I in a share of I items. It matters if all differences are
            equal.
        design: how the pairs were sampled, if not as one sample of fixed size; pairs of the
            first stage come first. It affects the deciding test, but no descriptive result.
        choice: SD of the difference due to choosing each arm's values (see `choice`).
        asked: margin, alpha, family and power, as in `decided`.

    Raises StatisticsError for n = 1, NaN, infinity, unequal lengths or parameters out of range.
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
        others["studentized bootstrap"] = p_of_bootstrap, 0.0
        if overall.n >= SIGN_FLIP_FROM and not choice:  # signs know nothing of a choice
            others["exact sign flip"] = sign_flip(deltas, seed=seed, resamples=resamples)
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

    The other arguments are as in `paired_contrast`.
    """
    arms = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
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
        sds=(sds[0], sds[1]),
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
    """Compare macro-averaged scores over tasks, paired by item, for a claim about new items.

    The crossed test decides; it never rejects more easily than the t of seed means. For a claim
    about these items alone, use a `paired_contrast` of `seed_means`.

    Args:
        baseline, treatment: K tasks of shape (S, I_k), same seeds and items in both arms.
        crossed: how the error over seeds and items is estimated.

    The other arguments are as in `paired_contrast`.
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
