"""The composed analysis: one contrast of two arms, with all that a report states about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .choice import widened, with_choice
from .conventions import (
    ALPHA,
    POWER,
    RESAMPLES,
    Interval,
    Result,
    checked_fraction,
    checked_scores,
)
from .crossed import Crossed, crossed_bootstrap, crossed_components, item_deltas, seed_means
from .deciding import Decided, DecidingTest, decided, seed_test
from .multiplicity import sign_flip
from .paired import correlation, effect_size, paired_deltas, rounding
from .sequential.at_look import OneLook
from .sequential.two_stages import Stages

SIGN_FLIP_FROM = 6  # pairs; with fewer its least p is above 5%


@dataclass(frozen=True)
class Pair(Result):
    """One seed: both scores and their difference."""

    baseline: float
    treatment: float
    delta: float


@dataclass(frozen=True)
class PairedContrast(Result):
    """Treatment minus baseline over seeds. None marks a quantity that does not exist.

    `decided` is what the registered test says, and what a reader states. All else stands beside it:
    other tests as sensitivity analyses (`others`), intervals named `descriptive`, which undercover
    at few pairs and decide nothing.
    """

    n: int
    descriptive_only: bool  # fewer than 5 pairs: no claim rests on the p-values
    constant: bool  # all differences are equal, up to the resolution of the measurement
    mean: float
    sd: float
    decided: Decided
    t: float | None
    df: int
    t_p: float
    studentized_p: float
    t_interval: Interval
    studentized_interval: Interval
    percentile_interval_descriptive: Interval
    d_z: float | None
    d_z_interval: Interval | None
    g_z: float | None
    g_z_interval: Interval | None
    sign_flip_p: float
    sign_flip_floor: float
    correlation: float | None
    margin: float | None
    pairs: tuple[Pair, ...]
    alpha: float
    bootstrap_enumerated: bool
    resamples: int  # distinct resamples are enumerated where the bootstrap is
    seed: int
    resolution: float  # of the measurement
    design: OneLook | Stages | None  # None: all pairs are one sample of a size that was fixed
    choice: float  # SD of the difference from choosing tuned values; in every p and interval
    test: DecidingTest = field(repr=False, compare=False)  # that decided, for what else is asked

    @property
    def others(self) -> dict[str, float]:
        """p by the tests that did not decide, which a sensitivity analysis looks at.

        Of the same design; tests that have no p under it are left out.
        """
        found = {"studentized bootstrap": self.studentized_p}
        if self.n >= SIGN_FLIP_FROM and not self.choice:  # signs know nothing of a choice
            found["exact sign flip"] = self.sign_flip_p
        return _under(self.design, found)

    @property
    def least(self) -> dict[str, float]:
        """The least p that tests of `others` could have given with so many pairs, by name.

        Of the bootstrap it matters under a design alone, which may ask for a p of 1e-5.
        """
        found = {"exact sign flip": self.sign_flip_floor}
        if self.design is not None:
            total = self.n**self.n if self.bootstrap_enumerated else self.resamples + 1
            found["studentized bootstrap"] = min(1.0, 2 * max(total - self.resamples, 1) / total)
        return _under(self.design, found)


@dataclass(frozen=True)
class MacroContrast(Result):
    """A macro difference over tasks, for new items: with the errors of both seeds and items.

    Attributes:
        crossed: of all pairs; `test` is what it becomes under the design.
    """

    target: str
    mean: float
    decided: Decided
    by_seed: PairedContrast
    crossed: Crossed
    test: DecidingTest = field(repr=False, compare=False)

    @property
    def others(self) -> dict[str, float]:
        """p by the tests that did not decide."""
        found = {"paired t on these items alone": self.by_seed.t_p}
        return _under(self.by_seed.design, found)


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
    design: OneLook | Stages | None = None,
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
    alpha = checked_fraction(alpha, "alpha")
    deltas = paired_deltas(baseline, treatment)
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    least = max(rounding(first, second), resolution or 0.0)
    plain = seed_test(deltas, seed=seed, resamples=resamples, resolution=least, rounded=rounded)

    def test_of(part: slice) -> DecidingTest:
        test = replace(plain, deltas=deltas[part])
        return test if in_stages else with_choice(test, test.t.standard_error, choice)

    in_stages = isinstance(design, Stages)
    decides = design.decide(test_of) if design else test_of(slice(None))
    if in_stages:  # which share one choice, so that it is added to both together
        decides = with_choice(decides, plain.t.standard_error, choice)
    says = decided(decides, "paired_t", margin=margin, alpha=alpha, family=family, power=power)
    effect = effect_size(deltas, level=1 - alpha)
    t, bootstrap, error = plain.t, plain.bootstrap, plain.t.standard_error
    wider = math.hypot(error, choice) / error
    moved = t.mean * (1 - 1 / wider)  # the null mean that 0 becomes with the choice in the error
    flips = sign_flip(deltas, seed=seed, resamples=resamples)
    pairs = zip(first.tolist(), second.tolist(), deltas.tolist(), strict=True)
    return PairedContrast(
        n=says.n,
        descriptive_only=says.descriptive_only,
        constant=t.constant,
        mean=t.mean,
        sd=t.sd,
        decided=says,
        t=None if t.constant else t.statistic(moved),
        df=t.df,
        t_p=t.p_value(moved),
        studentized_p=bootstrap.p_value(moved),
        t_interval=widened(t.interval(1 - alpha), t.mean, wider),
        studentized_interval=widened(bootstrap.studentized_interval(1 - alpha), t.mean, wider),
        percentile_interval_descriptive=bootstrap.percentile_interval(1 - alpha),
        d_z=effect.d_z,
        d_z_interval=effect.d_z_interval,
        g_z=effect.g_z,
        g_z_interval=effect.g_z_interval,
        sign_flip_p=flips.p_value,
        sign_flip_floor=flips.floor,
        correlation=correlation(first, second),
        margin=margin,
        pairs=tuple(Pair(*pair) for pair in pairs),
        alpha=alpha,
        bootstrap_enumerated=bootstrap.plan.enumerated,
        resamples=bootstrap.plan.total - bootstrap.plan.observed,
        seed=seed,
        resolution=least,
        design=design,
        choice=choice,
        test=decides,
    )


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
    design: OneLook | Stages | None = None,
    choice: float = 0.0,
    crossed: Literal["components", "bootstrap"] = "components",
) -> MacroContrast:
    """Macro-averaged scores over tasks, paired by seed and by item, for a claim about new items.

    `crossed` decides, which is never easier than the paired t. A claim about these
    items alone is a `paired_contrast` of `seed_means`.

    Args:
        baseline, treatment: K tasks of shape (S, I_k), same seeds and items in both arms.
    Others as `paired_contrast` has them.
    """
    deltas = item_deltas(baseline, treatment)
    by_seed = paired_contrast(
        seed_means(baseline),
        seed_means(treatment),
        seed=seed,
        margin=margin,
        alpha=alpha,
        family=family,
        power=power,
        resamples=resamples,
        resolution=resolution,
        design=design,
        choice=choice,
    )

    def crossed_of(part: slice) -> Crossed:
        if crossed == "components":
            return crossed_components([task[part] for task in deltas], resolution=resolution)
        return crossed_bootstrap(
            [task[part] for task in deltas],
            seed=seed,
            resamples=resamples,
            alpha=alpha,
            resolution=resolution,
        )

    def chosen(test: DecidingTest, of: Crossed) -> DecidingTest:
        return with_choice(test, of.standard_error, choice, of.item_error)

    def test_of(part: slice) -> DecidingTest:
        test = crossed_of(part)
        return test if in_stages else chosen(test, test)

    whole, in_stages = crossed_of(slice(None)), isinstance(design, Stages)
    decides = design.decide(test_of) if design else chosen(whole, whole)
    if in_stages:
        decides = chosen(decides, whole)
    says = decided(
        decides, f"crossed_{crossed}", margin=margin, alpha=alpha, family=family, power=power
    )
    return MacroContrast("new items", whole.mean, says, by_seed, whole, decides)


def _under(design: OneLook | Stages | None, found: dict[str, float]) -> dict[str, float]:
    if design is None:
        return found
    adjusted = {name: design.of_other(p) for name, p in found.items()}
    return {name: p for name, p in adjusted.items() if p is not None}


def slopes(sizes: Sequence[int], effects: np.ndarray) -> np.ndarray:
    """Least-squares slopes against log10 of the sizes: effects [sizes, seeds] -> [seeds]."""
    x = np.log10(np.asarray(sizes, dtype=np.float64))
    x = x - x.mean()
    return (x[:, None] * effects).sum(axis=0) / (x**2).sum()


def trend(sizes: Sequence[int], effects: np.ndarray) -> PairedContrast:
    """Return the mean slope over seeds, as a contrast with no slope at all; `effects` as in
    `slopes`."""
    found = slopes(sizes, effects)
    return paired_contrast(np.zeros_like(found), found, seed=0)
