"""Error from choosing a value by tuning, which tests can include (`TTest.choice`).

Each arm is judged at the value that was best on its tuning seeds. That choice is an estimate: on
other tuning seeds another value might have been best, and the difference between the arms would
change. A test that ignores this finds a difference between two equal arms in 7 to 31% of
studies, if each arm uses the best of seven rates on three tuning seeds (`benchmarks/choice.py`).

Along a numeric axis the value is the vertex of the parabola through the best point and its
neighbours in log value. `vertex_error` redraws the vertices with the pooled residual SD of the
tuning means, or with the SD of the verdict's runs if there are fewer than three tuning seeds. The
variance of the fitted difference at these vertices is added to the squared standard error. On a
grid of several axes, each combination of the other axes has such a parabola, and the best
combination is redrawn too. Without a numeric axis, tuning seeds are redrawn and the choice is
repeated (`redrawn_error`).

A parabola through widely spaced rates is only an approximation of the loss curve, however many
tuning seeds there are. `lack_of_fit` estimates the error of that approximation by the loss that
each parabola gains from its middle point to its vertex.
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

    `x` ascends. `slope` and `curvature` have one entry for each parabola.
    """

    x: Sequence[float]
    slope: Floats
    curvature: Floats

    @property
    def offset(self) -> Floats:
        """Offset of the vertex from the middle position, clipped to the outer positions."""
        low, high = self.x[0] - self.x[1], self.x[2] - self.x[1]
        bent = self.curvature > 0
        inside = np.clip(-self.slope / (2 * np.where(bent, self.curvature, 1.0)), low, high)
        # Without a least value inside, the better end; the middle where nothing slopes.
        outermost = np.where(self.slope > 0, low, np.where(self.slope < 0, high, 0.0))
        return np.where(bent, inside, outermost)

    @property
    def vertex(self) -> float:
        """Position of the vertex of one parabola, clipped to its outer positions."""
        return float(np.clip(self.x[1] + self.offset, self.x[0], self.x[2]))

    def rise(self, offset: Floats) -> Floats:
        """Return how much the parabola rises from its middle position to that plus `offset`."""
        return self.slope * offset + self.curvature * offset**2


def parabola(x: Sequence[float], y: ArrayLike) -> Parabola:
    """Return the parabolas through values `y` [..., 3] at three positions `x`."""
    y = np.asarray(y, dtype=float)
    a, b = x[1] - x[0], x[2] - x[1]
    left, right = (y[..., 0] - y[..., 1]) / a, (y[..., 2] - y[..., 1]) / b
    curvature = (left + right) / (a + b)
    return Parabola(x, right - curvature * b, curvature)


@dataclass(frozen=True)
class TunedArm:
    """Tuning scores to which one arm's vertex was fitted.

    Attributes:
        x: three positions, ascending, on the scale on which the parabola is fitted.
        chooses: [3, T] scores of the selection metric, lower is better.
        judged: [3, T] endpoint scores of the same trials; the same array if the endpoint is the
            selection metric.
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
    """Return the SD that choosing arms' values adds to a weighted sum over arms.

    Tuning means are redrawn with SD s / sqrt(tuning seeds), where s is `trial_sd`, or the
    residual SD pooled over the arms. Each arm's fitted parabola is evaluated at the vertex of
    the parabola through its redrawn means.

    Args:
        arms: for each arm, the scores at each combination of the other keys, the chosen one
            first. A redraw uses the combination with the lowest redrawn mean.
        weights: one per arm; by default the second arm minus the first.
        trial_sd: SD of a trial's selection metric over seeds, if it is known from other trials.
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
    """Return the SD that fitting parabolas adds to a weighted sum over arms.

    Each arm adds the square of its fitted gain: the endpoint's parabola at the middle position
    minus the same parabola at the vertex. A vertex at the middle position was tried itself and
    adds nothing.

    Args:
        arms: the scores to which each arm's vertex was fitted.
        weights: as in `vertex_error`.
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
    """Return the SD of `vertex_error` for grids without a parabola, by redrawing tuning seeds.

    The same seeds are drawn for all arms. Returns NaN if every tuning trial of an arm diverged.

    Args:
        arms: for each arm, scores of the selection metric, [candidates, T], lower is better, NaN
            for diverged trials, and the endpoint's scores of the same trials.
        weights: as in `vertex_error`.
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
    """Return the index of the best row of `scores`, [candidates, T].

    The best row has the fewest NaN (diverged trials), then the lowest mean. The first of equal
    rows wins.
    """
    lost, means = np.isnan(scores).sum(1), finite_means(scores)
    return int(np.lexsort((np.where(np.isnan(means), np.inf, means), lost))[0])


def finite_means(scores: Floats) -> Floats:
    """Return the mean of each row's finite values, or NaN for a row without any."""
    finite = np.isfinite(scores)
    total = np.where(finite, scores, 0.0).sum(1)
    return np.where(finite.any(1), total / np.maximum(finite.sum(1), 1), np.nan)
