"""One contrast of two arms: the test that decides, and all that a report states about it.

A sample is tested (`t_test`, `crossed`; a look or stages wrap the test), and the test is asked for
p, intervals, equivalence and power. These belong together: p and intervals invert the same test,
and what it could have detected is its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .bootstrap import paired_bootstrap
from .conventions import (
    ALPHA,
    DESCRIPTIVE_BELOW,
    POWER,
    RESAMPLES,
    Interval,
    Result,
    checked_fraction,
    checked_positive,
    checked_scores,
)
from .crossed import crossed_bootstrap, crossed_components, crossed_welch, item_deltas, seed_means
from .distributions import gammaln, noncentrality_interval
from .permutations import permutation, sign_flip
from .sequential.at_look import AtLook, OneLook
from .sequential.two_stages import InverseNormal, Stages
from .t_test import TTest, arm_summary, mean_and_sd, paired_deltas, paired_t, rounding, welch

CROSSED = ("crossed_components", "crossed_bootstrap", "crossed_welch")  # of seeds and items
WELCH = "welch_t"
INTERVAL_FROM = 3  # pairs, or runs of each arm
SIGN_FLIP_FROM = 6  # pairs; with fewer its least p is above 5%

DecidingTest = TTest | AtLook | InverseNormal
Design = OneLook | Stages | None  # None: all pairs are one sample of a size that was fixed


@dataclass(frozen=True)
class Decided(Result):
    """All that the deciding test says of one contrast.

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


def decided(
    test: DecidingTest,
    name: str,
    *,
    margin: float | None = None,
    alpha: float = ALPHA,
    family: int = 1,
    power: float = POWER,
) -> Decided:
    """State what `test` says, in a family of `family` hypotheses.

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
    return math.exp(gammaln(df / 2) - gammaln((df - 1) / 2)) / math.sqrt(df / 2) if df > 1 else 0.0


def effect_size(
    mean: float, sd: float, df: int, root_n: float, *, n: int, level: float = 1 - ALPHA
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


def correlation(baseline: ArrayLike, treatment: ArrayLike) -> float | None:
    """Pearson correlation between arms over seeds; None where an arm varies by rounding alone.

    Pairing pays in proportion to it: Var(delta) = Var(a) + Var(b) - 2 r SD(a) SD(b).
    """
    arms = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    if any(np.ptp(arm) <= rounding(arm) for arm in arms):
        return None
    a, b = (arm - math.fsum(arm) / arm.size for arm in arms)
    r = math.fsum(a * b) / math.sqrt(math.fsum(a * a) * math.fsum(b * b))
    return min(1.0, max(-1.0, r))


@dataclass(frozen=True)
class Pair(Result):
    """One seed: both scores and their difference."""

    baseline: float
    treatment: float
    delta: float


@dataclass(frozen=True)
class PairedContrast(Result):
    """Treatment minus baseline over seeds. None marks a quantity that does not exist.

    `decided` is what the registered test says, and what a reader states. All else stands beside it.

    Attributes:
        t_interval: of all pairs, as if they were one sample of a size that was fixed.
        studentized_interval, percentile_interval: of the bootstrap. The second undercovers at few
            pairs and describes.
        others: p by the tests that did not decide, which a sensitivity analysis looks at. Of the
            same design; tests that have no p under it are left out.
        floors: the least p that these could have given with so many pairs.
        resolution: of the measurement.
        test: the one that decided, for what else is asked of it.
    """

    n: int
    mean: float
    sd: float
    constant: bool
    decided: Decided
    t_interval: Interval
    studentized_interval: Interval
    percentile_interval: Interval
    effect: EffectSize
    correlation: float | None
    pairs: tuple[Pair, ...]
    others: dict[str, float]
    floors: dict[str, float]
    seed: int
    resolution: float
    design: Design
    choice: float
    test: DecidingTest = field(repr=False, compare=False)


def _under(design: Design, p_values: dict[str, float]) -> dict[str, float]:
    if design is None:
        return p_values
    adjusted = {name: design.of_other(p) for name, p in p_values.items()}
    return {name: p for name, p in adjusted.items() if p is not None}


def paired_contrast(
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
    design: Design = None,
    choice: float = 0.0,
) -> PairedContrast:
    """Everything a report states about one contrast of two arms run on the same seeds.

    Args:
        baseline, treatment: scores of shape (S,), S >= 2, entry s of both from seed s; same unit.
        seed: of the resampling (above 7 pairs) and of the sign flips (above 20).
        margin: half-width of "no effect worth having", in the scores' unit; None for no such test.
        family: hypotheses that are tested together, this one included; the detectable effect and
            the simultaneous interval are at level alpha / family.
        power: of the detectable effect.
        resolution: smallest difference that the measurement can show, where it is coarser than
            floating point: a step of 1 / I in a share of I items. It matters where all differences
            are equal.
        rounded: whether scores are rounded to the resolution: no SD is then taken as below it.
        design: how the pairs were sampled, where not as one sample of a size that was fixed; pairs
            of a first stage come first. It changes what is decided, and nothing that describes.
        choice: SD of the difference that comes from choosing each arm's values (see `choice`).
    Raises StatisticsError for n = 1, NaN, infinity, unequal lengths or parameters out of range.
    """
    deltas = paired_deltas(baseline, treatment)
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    least = max(rounding(first, second), resolution or 0.0)

    def test_of(part: slice) -> TTest:
        return paired_t(deltas[part], resolution=least, rounded=rounded, choice=choice)

    whole = test_of(slice(None))
    test = design.decide(test_of) if design else whole
    says = decided(test, "paired_t", margin=margin, alpha=alpha, family=family, power=power)
    bootstrap = paired_bootstrap(
        deltas, seed=seed, resamples=resamples, resolution=least, choice=choice
    )
    others, floors = {"studentized bootstrap": bootstrap.p_value()}, {}
    if design is not None:  # which may ask for a p of 1e-5
        floors["studentized bootstrap"] = bootstrap.least_p
    if whole.n >= SIGN_FLIP_FROM and not choice:  # signs know nothing of a choice
        flips = sign_flip(deltas, seed=seed, resamples=resamples)
        others["exact sign flip"], floors["exact sign flip"] = flips.p_value, flips.floor
    sd = mean_and_sd(deltas)[1]
    pairs = zip(first.tolist(), second.tolist(), deltas.tolist(), strict=True)
    return PairedContrast(
        n=whole.n,
        mean=whole.mean,
        sd=sd,
        constant=whole.constant,
        decided=says,
        t_interval=whole.interval(1 - alpha),
        studentized_interval=bootstrap.studentized_interval(1 - alpha),
        percentile_interval=bootstrap.percentile_interval(1 - alpha),
        effect=effect_size(
            whole.mean, sd, whole.n - 1, math.sqrt(whole.n), n=whole.n, level=1 - alpha
        ),
        correlation=correlation(first, second),
        pairs=tuple(Pair(*pair) for pair in pairs),
        others=_under(design, others),
        floors=_under(design, floors),
        seed=seed,
        resolution=least,
        design=design,
        choice=choice,
        test=test,
    )


@dataclass(frozen=True)
class UnpairedContrast(Result):
    """Treatment minus baseline over runs that are no pairs. None marks what does not exist.

    Attributes:
        n: runs of the arm that has fewer.
        decided: what Welch's t says; `df` are its.
        sd: pooled over both arms.
        effect: the difference over the pooled SD, with the interval of the pooled t.
        others, floors: p of a permutation test, and the least that it could have given.
        values: scores of each arm, in the order given.
    """

    n: int
    n_baseline: int
    n_treatment: int
    mean: float
    sd: float
    sd_baseline: float
    sd_treatment: float
    constant: bool
    decided: Decided
    df: float
    effect: EffectSize
    others: dict[str, float]
    floors: dict[str, float]
    values: tuple[tuple[float, ...], tuple[float, ...]]
    seed: int
    resolution: float
    test: TTest = field(repr=False, compare=False)


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
) -> UnpairedContrast:
    """Everything a report states about one contrast of two arms whose runs are no pairs.

    Args: baseline, treatment: scores of shapes (A,) and (B,), both of at least 2 runs.
    Others as `paired_contrast` has them.
    """
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    test = welch(first, second, resolution=resolution, rounded=rounded)
    says = decided(test, WELCH, margin=margin, alpha=alpha, family=family, power=power)
    dealt = permutation(first, second, seed=seed, resamples=resamples)
    n_a, n_b, sds = first.size, second.size, [arm_summary(arm)[1] for arm in (first, second)]
    df = n_a + n_b - 2
    pooled = math.sqrt(((n_a - 1) * sds[0] ** 2 + (n_b - 1) * sds[1] ** 2) / df)
    root_n = math.sqrt(n_a * n_b / (n_a + n_b))
    return UnpairedContrast(
        n=test.n,
        n_baseline=n_a,
        n_treatment=n_b,
        mean=test.mean,
        sd=pooled,
        sd_baseline=sds[0],
        sd_treatment=sds[1],
        constant=test.constant,
        decided=says,
        df=test.df,
        effect=effect_size(test.mean, pooled, df, root_n, n=test.n, level=1 - alpha),
        others={"permutation": dealt.p_value},
        floors={"permutation": dealt.floor},
        values=(tuple(first.tolist()), tuple(second.tolist())),
        seed=seed,
        resolution=test.resolution,
        test=test,
    )


@dataclass(frozen=True)
class MacroContrast(Result):
    """A macro difference over tasks, for new items: with the errors of seeds, or runs, and items.

    Attributes:
        by_seed: the same for these items alone.
        crossed: the test of all pairs; `test` is what it becomes under the design.
        n_items: over all tasks.
        others: p by the tests that did not decide.
    """

    mean: float
    decided: Decided
    by_seed: PairedContrast | UnpairedContrast
    crossed: TTest
    n_items: int
    others: dict[str, float]
    test: DecidingTest = field(repr=False, compare=False)


def macro_contrast(
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
    design: Design = None,
    choice: float = 0.0,
    crossed: Literal["components", "bootstrap", "welch"] = "components",
) -> MacroContrast:
    """Macro-averaged scores over tasks, paired by item, for a claim about new items.

    `crossed` decides, which is never easier than the t of seed means. A claim about these items
    alone is a `paired_contrast` of `seed_means`.

    Args:
        baseline, treatment: K tasks of shape (S, I_k), same seeds and items in both arms; for
            "welch", whose runs are no pairs, of shapes (A, I_k) and (B, I_k).
    Others as `paired_contrast` has them.
    """
    asked = {"margin": margin, "alpha": alpha, "family": family, "power": power}
    means = seed_means(baseline), seed_means(treatment)
    alike = {"seed": seed, "resamples": resamples, "resolution": resolution}
    test: DecidingTest
    if crossed == "welch":
        by_seed: PairedContrast | UnpairedContrast = unpaired_contrast(*means, **alike, **asked)
        test = whole = crossed_welch(baseline, treatment, resolution=resolution)
        others = {"Welch's t on these items alone": by_seed.decided.p_value}
    else:
        deltas = item_deltas(baseline, treatment)

        def test_of(part: slice) -> TTest:
            tasks = [task[part] for task in deltas]
            keywords = {"resolution": resolution, "choice": choice}
            if crossed == "components":
                return crossed_components(tasks, **keywords)
            return crossed_bootstrap(tasks, seed=seed, resamples=resamples, **keywords)

        by_seed = paired_contrast(*means, design=design, choice=choice, **alike, **asked)
        whole = test_of(slice(None))
        test = design.decide(test_of) if design else whole
        others = {"paired t on these items alone": by_seed.decided.p_value}
    return MacroContrast(
        mean=whole.mean,
        decided=decided(test, f"crossed_{crossed}", **asked),
        by_seed=by_seed,
        crossed=whole,
        n_items=sum(np.shape(task)[1] for task in baseline),
        others=others,
        test=test,
    )
