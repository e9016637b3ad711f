"""The error of a value that was chosen by tuning, which a test includes (`TTest.choice`).

Each arm is judged at the value that was best on its tuning seeds. That choice is an estimate: on
other tuning seeds another value would have been best, and the difference between the arms would
have been another. Two equal arms, each at its best of seven rates by three tuning seeds, are told
apart in 7 to 31% of studies by a test that takes the choice as given (`benchmarks/choice.py`).

Along a numeric axis the value is the vertex of the parabola through the best point and its
neighbours in log value, and what is added to the squared standard error is the variance of the
fitted difference at vertices that are redrawn with the pooled residual SD of the tuning means
(`vertex_error`). On a grid of several axes each combination of the others has such a parabola, and
which of them is best is redrawn too. Where there is no such axis, tuning seeds are redrawn and the
choice is made again (`redrawn_error`).

A parabola through rates that lie far apart is not the curve of the loss, whatever the number of
tuning seeds. `lack_of_fit` estimates the error of that approximation by the loss that each parabola
gains from its middle point to its vertex.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from .conventions import RESAMPLES, Floats
from .crossed import interaction
from .t_test import mean_and_sd

LEAST_TUNING_SEEDS = 3  # with fewer, the spread of tuning means is not known well enough


@dataclass(frozen=True)
class Parabola:
    """Through three points with ascending `x`: middle + slope (x - x[1]) + curvature (x - x[1])^2.

    `slope` and `curvature` have an entry for each such parabola.
    """

    x: Sequence[float]
    slope: Floats
    curvature: Floats

    @property
    def offset(self) -> Floats:
        """Offset of the vertex from the middle position, within the outer positions."""
        low, high = self.x[0] - self.x[1], self.x[2] - self.x[1]
        bent = self.curvature > 0
        inside = np.clip(-self.slope / (2 * np.where(bent, self.curvature, 1.0)), low, high)
        # Without a least value inside, the better end; the middle where nothing slopes.
        outermost = np.where(self.slope > 0, low, np.where(self.slope < 0, high, 0.0))
        return np.where(bent, inside, outermost)

    @property
    def vertex(self) -> float:
        """Position of the vertex of one parabola, within its outer positions."""
        return float(np.clip(self.x[1] + self.offset, self.x[0], self.x[2]))

    def rise(self, offset: Floats) -> Floats:
        """Return its value so far from the middle place minus its value there."""
        return self.slope * offset + self.curvature * offset**2


def parabola(x: Sequence[float], y: ArrayLike) -> Parabola:
    """Return the parabolas through values `y` [..., 3] at three places."""
    y = np.asarray(y, dtype=float)
    a, b = x[1] - x[0], x[2] - x[1]
    left, right = (y[..., 0] - y[..., 1]) / a, (y[..., 2] - y[..., 1]) / b
    curvature = (left + right) / (a + b)
    return Parabola(x, right - curvature * b, curvature)


@dataclass(frozen=True)
class TunedArm:
    """Tuning scores that one arm's vertex was fitted to.

    Attributes:
        x: three places, ascending, on the scale on which the parabola is fitted.
        chooses: [3, T] tuning scores by which the value was chosen, lower is better.
        judged: [3, T] scores of the endpoint at the same trials; the same array where it chose.
    """

    x: Sequence[float]
    chooses: Floats
    judged: Floats


def vertex_error(
    arms: Sequence[Sequence[TunedArm]],
    weights: Sequence[float] = (-1.0, 1.0),
    *,
    seed: int,
    draws: int = RESAMPLES,
) -> float:
    """Return the SD of a weighted sum over arms that comes from choosing their values.

    Tuning means are redrawn with the residual SD, pooled over the arms, over sqrt(tuning seeds).
    The fitted parabola of each arm is read at the vertex of the parabola that is fitted to them.

    Args:
        arms: of each, what was fitted with the other keys as chosen; then with each other
            combination of these, which may be chosen where the redrawn means are better.
        weights: part for each arm; by default the second minus the first.
    """
    rng = np.random.default_rng([seed, 20_261_124])
    pooled = math.sqrt(np.mean([interaction(slices[0].chooses) for slices in arms]))
    lost = np.zeros(draws)
    for weight, slices in zip(weights, arms, strict=True):
        chooses = np.stack([part.chooses.mean(1) for part in slices])
        n_seeds, home = slices[0].chooses.shape[1], slices[0].judged.mean(1)[1]
        noise = rng.standard_normal((draws, len(slices), 3)) * pooled / math.sqrt(n_seeds)
        drawn = chooses + noise
        best, read = drawn.min(2).argmin(1), np.empty(draws)
        for k, part in enumerate(slices):
            is_best, judged = best == k, part.judged.mean(1)
            fit = parabola(part.x, judged)
            if part.judged is part.chooses:
                # Where what chose has no least value inside, it is read as a line.
                fit = replace(fit, curvature=np.maximum(fit.curvature, 0.0))
            at = parabola(part.x, drawn[is_best, k]).offset
            read[is_best] = judged[1] - home + fit.rise(at)
        lost += weight * read
    return mean_and_sd(lost)[1]


def lack_of_fit(arms: Sequence[TunedArm], weights: Sequence[float] = (-1.0, 1.0)) -> float:
    """Return the SD of a weighted sum over arms that comes from fitting parabolas.

    Each arm adds the square of its fitted gain: the endpoint's parabola at the middle place minus
    the same parabola at the vertex. A vertex at the middle place was tried itself and adds nothing.

    Args: arms: what each arm's vertex was fitted to. weights: as in `vertex_error`.
    """
    gains = [
        parabola(arm.x, arm.judged.mean(1)).rise(parabola(arm.x, arm.chooses.mean(1)).offset)
        for arm in arms
    ]
    return math.hypot(*(w * float(gain) for w, gain in zip(weights, gains, strict=True)))


def redrawn_error(
    arms: Sequence[tuple[Floats, Floats]],
    weights: Sequence[float] = (-1.0, 1.0),
    *,
    seed: int,
    draws: int = 2_000,
) -> float:
    """Return the same where no parabola can be fitted: tuning seeds are redrawn, for all arms.

    Args: arms: [candidates, T] what chose, lower is better, NaN where a trial diverged; and the
        endpoint at the same trials. weights: as those of `vertex_error`.
    """
    rng = np.random.default_rng([seed, 20_261_124])
    n_seeds = arms[0][0].shape[1]
    means = [finite_means(judged) for _, judged in arms]
    # The same seeds drawn in another order choose alike.
    drawn = np.sort(rng.integers(0, n_seeds, (draws, n_seeds)), axis=1)
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    differences = np.zeros(len(kinds))
    for weight, (chose, _), mean in zip(weights, arms, means, strict=True):
        differences += weight * np.array([mean[best_of(chose[:, seeds])] for seeds in kinds])
    known = np.isfinite(differences)
    if not known.any():
        return math.nan
    return mean_and_sd(np.repeat(differences[known], counts[known]))[1]


def best_of(scores: Floats) -> int:
    """Return the row of [candidates, T] with the least mean, of those that diverged least often.

    Of equal ones the first.
    """
    lost, means = np.isnan(scores).sum(1), finite_means(scores)
    return int(np.lexsort((np.where(np.isnan(means), np.inf, means), lost))[0])


def finite_means(scores: Floats) -> Floats:
    """Return the mean of each row over what is finite; NaN where nothing is."""
    finite = np.isfinite(scores)
    total = np.where(finite, scores, 0.0).sum(1)
    return np.where(finite.any(1), total / np.maximum(finite.sum(1), 1), np.nan)
