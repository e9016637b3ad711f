"""Contrasts of two arms: the deciding test, its estimates and the other tests.

A sample is tested (`t_test`, `crossed`; a look or stages wrap the test), and the test is asked for
p, intervals, equivalence and power. These belong together: p and intervals invert the same test,
and what it could have detected is its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from .conventions import (
    ALPHA,
    DESCRIPTIVE_BELOW,
    POWER,
    RESAMPLES,
    Floats,
    Interval,
    Result,
    checked_fraction,
    checked_positive,
    checked_scores,
)
from .crossed import crossed_bootstrap, crossed_components, crossed_welch, item_deltas
from .looks import OneLook
from .power import noncentrality_interval
from .resampling import paired_bootstrap, permutation, sign_flip
from .stages import InverseNormal, Stages
from .t_test import TTest, arm_summary, mean_and_sd, paired_deltas, paired_t, rounding, welch

CROSSED = ("crossed_components", "crossed_bootstrap", "crossed_welch")  # of seeds and items
WELCH = "welch_t"
INTERVAL_FROM = 3  # pairs, or runs of each arm
SIGN_FLIP_FROM = 6  # pairs; with fewer its least p is above 5%

DecidingTest = TTest | InverseNormal
Design = OneLook | Stages | None  # None: all pairs are one sample of a size that was fixed


@dataclass(frozen=True)
class Decided(Result):
    """Results of the deciding test of one contrast.

    Attributes:
        test: `paired_t`, WELCH or one of CROSSED.
        constant: nothing varies; p is the least that the measurement's resolution allows, and the
            interval a point up to that resolution.
        interval: of level 1 - alpha; leaves 0 out exactly where p_value <= alpha.
        simultaneous_interval: of level 1 - alpha / family (Bonferroni), for reading all of a
            family's intervals at once.
        equivalence_interval: of level 1 - 2 alpha; lies within the margin exactly where
            equivalence_p, of two one-sided tests, is <= alpha.
        equivalent: by itself; a family is adjusted by its reader.
        detectable: the least effect detected at the power, at level alpha / family.
    """

    test: str
    n: int
    descriptive_only: bool
    constant: bool
    mean: float
    p_value: float
    interval: Interval
    family: int
    simultaneous_interval: Interval
    equivalence_interval: Interval
    margin: float | None
    equivalence_p: float | None
    equivalent: bool | None
    detectable: float

    @property
    def has_interval(self) -> bool:
        """Return whether intervals are stated: two runs or pairs are too few for an SD."""
        return self.n >= INTERVAL_FROM


class Asked(TypedDict, total=False):
    """Options of the test of a contrast.

    Attributes:
        margin: half-width of "no effect worth having", in the scores' unit; None for no such test.
        alpha: two-sided level.
        family: hypotheses that are tested together, this one included; the detectable effect and
            the simultaneous interval are at level alpha / family.
        power: of the detectable effect.
    """

    margin: float | None
    alpha: float
    family: int
    power: float


def decided(
    test: DecidingTest,
    name: str,
    *,
    margin: float | None = None,
    alpha: float = ALPHA,
    family: int = 1,
    power: float = POWER,
) -> Decided:
    """State what `test` says; others as `Asked` has them.

    Equivalence is by two one-sided tests, both of them `test` (Schuirmann 1987).
    """
    alpha = checked_fraction(alpha, "alpha")
    inner = test.interval(1 - 2 * alpha)
    equivalence_p = equivalent = None
    if margin is not None:
        margin = checked_positive(margin, "margin")
        p_low = test.one_sided_p(-margin, greater=True)
        p_high = test.one_sided_p(margin, greater=False)
        equivalence_p, equivalent = max(p_low, p_high), inner.inside(margin)
    return Decided(
        test=name,
        n=test.n,
        descriptive_only=test.n < DESCRIPTIVE_BELOW,
        constant=test.constant,
        mean=test.mean,
        p_value=test.p_value(),
        interval=test.interval(1 - alpha),
        family=family,
        simultaneous_interval=test.interval(1 - alpha / family),
        equivalence_interval=inner,
        margin=margin,
        equivalence_p=equivalence_p,
        equivalent=equivalent,
        detectable=test.detectable(power=power, alpha=alpha / family),
    )


@dataclass(frozen=True)
class EffectSize(Result):
    """A difference in SDs: of the paired differences, or pooled over runs that are no pairs.

    Every field is None where that SD is 0, an interval where there are fewer than 5 pairs.

    Attributes:
        d: the difference over the SD (Cohen 1988).
        g: the same without its bias (Hedges 1981).
    """

    d: float | None = None
    d_interval: Interval | None = None
    g: float | None = None
    g_interval: Interval | None = None


def hedges_correction(df: int) -> float:
    """J(df), by which d overestimates on average; exact, not 1 - 3/(4 df - 1) (Hedges 1981)."""
    if df == 1:
        return 0.0
    return math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)


def effect_size(
    mean: float, sd: float, df: int, root_n: float, *, n: int, level: float
) -> EffectSize:
    """Return d and g with noncentral-t intervals (Steiger and Fouladi 1997).

    Args:
        df: degrees of freedom of the SD; with 1, J(1) = 0 and g is 0: it says nothing.
        root_n: mean / SD times it is Student's t.
        n: pairs, or runs of the arm that has fewer.
    """
    if not sd:
        return EffectSize()
    d, correction = mean / sd, hedges_correction(df)
    if n < DESCRIPTIVE_BELOW:
        return EffectSize(d, None, correction * d, None)
    low, high = (ncp / root_n for ncp in noncentrality_interval(d * root_n, df, level))
    of_g = Interval(correction * low, correction * high, level)
    return EffectSize(d, Interval(low, high, level), correction * d, of_g)


def correlation(*arms: Floats) -> float | None:
    """Pearson correlation between two arms over seeds; None where one varies by rounding alone.

    Pairing pays in proportion to it: Var(delta) = Var(a) + Var(b) - 2 r SD(a) SD(b).
    """
    if any(np.ptp(arm) <= rounding(arm) for arm in arms):
        return None
    a, b = (arm - math.fsum(arm) / arm.size for arm in arms)
    r = math.fsum(a * b) / math.sqrt(math.fsum(a * a) * math.fsum(b * b))
    return min(1.0, max(-1.0, r))


@dataclass(frozen=True)
class RunContrast(Result):
    """Treatment minus baseline over runs. None marks a quantity that does not exist.

    `decided` is what the registered test says, and what a reader states. All else stands beside it.

    Attributes:
        n: pairs, or runs of the arm that has fewer.
        mean, sd: of the differences; of runs that are no pairs, the SD is pooled over both arms.
        others: p by the tests that did not decide, which a sensitivity analysis looks at. Of the
            same design; tests that have no p under it are left out.
        floors: the least p that these could have given with so many pairs or runs.
        test: the one that decided, for what else is asked of it.
    """

    n: int
    mean: float
    sd: float
    decided: Decided
    effect: EffectSize
    others: dict[str, float]
    floors: dict[str, float]
    test: DecidingTest = field(repr=False, compare=False)


@dataclass(frozen=True)
class Pair(Result):
    """One seed: both scores and their difference."""

    baseline: float
    treatment: float
    delta: float


@dataclass(frozen=True)
class PairedContrast(RunContrast):
    """The same over seeds that both arms have.

    Attributes:
        t_interval: of all pairs, as if they were one sample of a size that was fixed.
        studentized_interval, percentile_interval: of the bootstrap. The second undercovers at few
            pairs and describes.
    """

    t_interval: Interval
    studentized_interval: Interval
    percentile_interval: Interval
    correlation: float | None
    pairs: tuple[Pair, ...]


def _under(design: Design, p_values: dict[str, float]) -> dict[str, float]:
    if design is None:
        return p_values
    adjusted = {name: design.other_p(p) for name, p in p_values.items()}
    return {name: p for name, p in adjusted.items() if p is not None}


def paired_contrast(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    rounded: bool = False,
    design: Design = None,
    choice: float = 0.0,
    **asked: Unpack[Asked],
) -> PairedContrast:
    """Everything a report states about one contrast of two arms run on the same seeds.

    Args:
        baseline, treatment: scores of shape (S,), S >= 2, entry s of both from seed s; same unit.
        seed: of the resampling (above 7 pairs) and of the sign flips (above 20).
        resolution: smallest difference that the measurement can show, where it is coarser than
            floating point: a step of 1 / I in a share of I items. It matters where all differences
            are equal.
        rounded: whether scores are rounded to the resolution: no SD is then taken as below it.
        design: how the pairs were sampled, where not as one sample of a size that was fixed; pairs
            of a first stage come first. It changes what is decided, and nothing that describes.
        choice: SD of the difference that comes from choosing each arm's values (see `choice`).
        asked: margin, alpha, family and power, as `Asked` has them.
    Raises StatisticsError for n = 1, NaN, infinity, unequal lengths or parameters out of range.
    """
    deltas, level = paired_deltas(baseline, treatment), 1 - asked.get("alpha", ALPHA)
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    floor = max(rounding(first, second), resolution or 0.0)

    def test_of(part: slice) -> TTest:
        return paired_t(deltas[part], resolution=floor, rounded=rounded, choice=choice)

    overall = test_of(slice(None))
    test = design.decide(test_of) if design else overall
    says = decided(test, "paired_t", **asked)
    bootstrap = paired_bootstrap(
        deltas, seed=seed, resamples=resamples, resolution=floor, choice=choice
    )
    other_tests, floors = {"studentized bootstrap": bootstrap.p_value()}, {}
    if design is not None:  # which may ask for a p of 1e-5
        floors["studentized bootstrap"] = bootstrap.least_p
    if overall.n >= SIGN_FLIP_FROM and not choice:  # signs know nothing of a choice
        flips = sign_flip(deltas, seed=seed, resamples=resamples)
        other_tests["exact sign flip"], floors["exact sign flip"] = flips.p_value, flips.floor
    n, mean, sd = overall.n, overall.mean, mean_and_sd(deltas)[1]
    pairs = zip(first.tolist(), second.tolist(), deltas.tolist(), strict=True)
    return PairedContrast(
        n=n,
        mean=mean,
        sd=sd,
        decided=says,
        effect=effect_size(mean, sd, n - 1, math.sqrt(n), n=n, level=level),
        others=_under(design, other_tests),
        floors=_under(design, floors),
        test=test,
        t_interval=overall.interval(level),
        studentized_interval=bootstrap.studentized_interval(level),
        percentile_interval=bootstrap.percentile_interval(level),
        correlation=correlation(first, second),
        pairs=tuple(Pair(*pair) for pair in pairs),
    )


@dataclass(frozen=True)
class UnpairedContrast(RunContrast):
    """The same over runs that are no pairs, by Welch's t.

    Attributes:
        df: those of Welch's t; the interval of `effect` is that of the pooled t.
        values: scores of each arm, in the order given.
    """

    n_baseline: int
    n_treatment: int
    sd_baseline: float
    sd_treatment: float
    df: float
    values: tuple[tuple[float, ...], tuple[float, ...]]


def unpaired_contrast(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    rounded: bool = False,
    **asked: Unpack[Asked],
) -> UnpairedContrast:
    """Everything a report states about one contrast of two arms whose runs are no pairs.

    Args: baseline, treatment: scores of shapes (A,) and (B,), both of at least 2 runs.
    Others as `paired_contrast` has them.
    """
    arms = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    test = welch(*arms, resolution=resolution, rounded=rounded)
    dealt = permutation(*arms, seed=seed, resamples=resamples)
    (n_a, n_b), sds = (arm.size for arm in arms), [arm_summary(arm)[1] for arm in arms]
    df, root_n = n_a + n_b - 2, math.sqrt(n_a * n_b / (n_a + n_b))
    pooled = math.sqrt(((n_a - 1) * sds[0] ** 2 + (n_b - 1) * sds[1] ** 2) / df)
    level = 1 - asked.get("alpha", ALPHA)
    return UnpairedContrast(
        n=test.n,
        mean=test.mean,
        sd=pooled,
        decided=decided(test, WELCH, **asked),
        effect=effect_size(test.mean, pooled, df, root_n, n=test.n, level=level),
        others={"permutation": dealt.p_value},
        floors={"permutation": dealt.floor},
        test=test,
        n_baseline=n_a,
        n_treatment=n_b,
        sd_baseline=sds[0],
        sd_treatment=sds[1],
        df=test.df,
        values=(tuple(arms[0].tolist()), tuple(arms[1].tolist())),
    )


@dataclass(frozen=True)
class MacroContrast(Result):
    """A macro difference over tasks, for new items: with the errors of seeds, or runs, and items.

    Attributes:
        crossed: the test of all pairs; `test` is what it becomes under the design.
        n_items: over all tasks.
    """

    decided: Decided
    crossed: TTest
    n_items: int
    test: DecidingTest = field(repr=False, compare=False)


def macro_contrast(
    baseline: Sequence[ArrayLike],
    treatment: Sequence[ArrayLike],
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    design: Design = None,
    choice: float = 0.0,
    crossed: Literal["components", "bootstrap", "welch"] = "components",
    **asked: Unpack[Asked],
) -> MacroContrast:
    """Macro-averaged scores over tasks, paired by item, for a claim about new items.

    `crossed` decides, which is never easier than the t of seed means. A claim about these items
    alone is a `paired_contrast` of `seed_means`.

    Args:
        baseline, treatment: K tasks of shape (S, I_k), same seeds and items in both arms; for
            "welch", whose runs are no pairs, of shapes (A, I_k) and (B, I_k).
    Others as `paired_contrast` has them.
    """

    def test_of(part: slice) -> TTest:
        if crossed == "welch":
            return crossed_welch(baseline, treatment, resolution=resolution)
        tasks = [task[part] for task in item_deltas(baseline, treatment)]
        if crossed == "components":
            return crossed_components(tasks, resolution=resolution, choice=choice)
        drawn = {"seed": seed, "resamples": resamples}
        return crossed_bootstrap(tasks, **drawn, resolution=resolution, choice=choice)

    overall = test_of(slice(None))
    test = design.decide(test_of) if design else overall
    return MacroContrast(
        decided=decided(test, f"crossed_{crossed}", **asked),
        crossed=overall,
        n_items=sum(np.shape(task)[1] for task in baseline),
        test=test,
    )
