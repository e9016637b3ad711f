"""Standard errors due to hyperparameter selection, which tests can include (`TTest.choice`).

Each arm is compared at the hyperparameter value that was best on its tuning seeds. With other
tuning seeds, another value might have been selected, and the difference between arms would change.
A test that ignores this error rejects in 7 to 31% of studies with two equal arms, if each arm uses
the best of seven learning rates on three tuning seeds (`benchmarks/choice.py`).

For a numeric hyperparameter, the selected value is the vertex of a parabola through the best point
and its neighbours, as a function of the log value. `vertex_error` simulates the tuning means by a
parametric bootstrap, refits the vertices, and returns the SD of the resulting difference. In a grid
over several hyperparameters, there is one parabola for each combination of the others, and the best
combination is also selected again. Without a numeric hyperparameter, `redrawn_error` bootstraps the
tuning seeds and repeats the selection.

A parabola is only an approximation of the loss curve, regardless of the number of tuning seeds.
`lack_of_fit` estimates the approximation error as the loss difference between the middle point and
the vertex of each parabola.
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

LEAST_TUNING_SEEDS = 3  # with fewer, the spread of tuning trials is not known well enough


@dataclass(frozen=True)
class Parabola:
    """Parabolas through three points: y[1] + slope (x - x[1]) + curvature (x - x[1])^2.

    Attributes:
        x: three positions in ascending order, common to all parabolas.
        slope, curvature: coefficients, with one entry per parabola.
    """

    x: Sequence[float]
    slope: Floats
    curvature: Floats

    @property
    def offset(self) -> Floats:
        """Distance of the vertex from the middle position, with the vertex clipped to [x[0], x[2]].

        A parabola without a minimum uses the lower end, or the middle if it is flat.
        """
        low, high = self.x[0] - self.x[1], self.x[2] - self.x[1]
        bent = self.curvature > 0
        inside = np.clip(-self.slope / (2 * np.where(bent, self.curvature, 1.0)), low, high)
        # Without a least value inside, the better end; the middle where nothing slopes.
        outermost = np.where(self.slope > 0, low, np.where(self.slope < 0, high, 0.0))
        return np.where(bent, inside, outermost)

    @property
    def vertex(self) -> float:
        """Position of the vertex of a single parabola, clipped to [x[0], x[2]]."""
        return float(np.clip(self.x[1] + self.offset, self.x[0], self.x[2]))

    def rise(self, offset: Floats) -> Floats:
        """Return the parabola's value at x[1] + offset minus its value at x[1]."""
        return self.slope * offset + self.curvature * offset**2


def parabola(x: Sequence[float], y: ArrayLike) -> Parabola:
    """Fit parabolas to values `y` [..., 3] at three ascending positions `x`."""
    y = np.asarray(y, dtype=float)
    a, b = x[1] - x[0], x[2] - x[1]
    left, right = (y[..., 0] - y[..., 1]) / a, (y[..., 2] - y[..., 1]) / b
    curvature = (left + right) / (a + b)
    return Parabola(x, right - curvature * b, curvature)


@dataclass(frozen=True)
class TunedArm:
    """Scores of one arm's tuning trials at three values of a hyperparameter and T tuning seeds.

    Attributes:
        x: the three values in ascending order, on the scale on which the parabola is fitted.
        chooses: [3, T] scores of the selection metric; lower is better.
        judged: [3, T] endpoint scores of the same trials; the same array object as `chooses` if
            the endpoint is the selection metric.
    """

    x: Sequence[float]
    chooses: Floats
    judged: Floats


def vertex_error(
    arms: Sequence[Sequence[TunedArm]],
    weights: Sequence[float] = (-1.0, 1.0),
    *,
    seed: int,
    trial_sd: float | None = None,
    draws: int = RESAMPLES,
) -> float:
    """Return the standard error of a weighted sum over arms due to hyperparameter selection.

    Each draw simulates tuning means with SD s / sqrt(T), where T is the number of tuning seeds and
    s is `trial_sd` or the pooled residual SD. It then evaluates each arm's fitted parabola at the
    vertex of the parabola through the simulated means.

    Args:
        arms: for each arm, tuning scores at each combination of the other hyperparameters, with
            the selected combination first.
        weights: one weight per arm; by default the second arm minus the first.
        seed: seed of the simulation.
        trial_sd: SD of the selection metric over seeds, if it is known from other trials.
        draws: number of simulated draws.
    """
    rng = np.random.default_rng([seed, 20_261_124])
    if trial_sd is None:
        trial_sd = math.sqrt(np.mean([interaction(slices[0].chooses) for slices in arms]))
    lost = np.zeros(draws)
    for weight, slices in zip(weights, arms, strict=True):
        chooses = np.stack([part.chooses.mean(1) for part in slices])
        n_seeds, home = slices[0].chooses.shape[1], slices[0].judged.mean(1)[1]
        noise = rng.standard_normal((draws, len(slices), 3)) * trial_sd / math.sqrt(n_seeds)
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
    """Return the standard error of a weighted sum over arms due to lack of fit of the parabolas.

    The error of an arm is the difference of its endpoint parabola between the middle position and
    the vertex. It is 0 if the vertex is at the middle position, where a trial was run.

    Args:
        arms: tuning scores of each arm at the selected values of its other hyperparameters.
        weights: one weight per arm; by default the second arm minus the first.
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
    """Return the standard error due to hyperparameter selection, by a bootstrap of tuning seeds.

    The same seeds are sampled for all arms. Returns NaN if all tuning trials of an arm diverged.

    Args:
        arms: for each arm, (selection scores, endpoint scores) of shape [candidates, T] for T
            tuning seeds. Lower selection scores are better; NaN marks diverged trials.
        weights: one weight per arm; by default the second arm minus the first.
        seed: seed of the bootstrap.
        draws: number of bootstrap samples.
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
    """Return the index of the best row of `scores` [candidates, T], where lower is better.

    The best row has the fewest NaN (diverged trials), then the lowest mean of the other scores.
    Ties are resolved in favour of the first row.
    """
    lost, means = np.isnan(scores).sum(1), finite_means(scores)
    return int(np.lexsort((np.where(np.isnan(means), np.inf, means), lost))[0])


def finite_means(scores: Floats) -> Floats:
    """Return the mean of the finite values in each row, or NaN for rows without finite values."""
    finite = np.isfinite(scores)
    total = np.where(finite, scores, 0.0).sum(1)
    return np.where(finite.any(1), total / np.maximum(finite.sum(1), 1), np.nan)
