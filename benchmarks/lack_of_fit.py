"""Simulated error rates of tuned comparisons, with and without lack of fit in the standard error.

    python benchmarks/lack_of_fit.py [STUDIES]

Each of the 40 contrasts of the study `embedding-factorial` is simulated with two arms that are
equally good at their optimal learning rates. Loss curves interpolate the recorded tuning means, by
PCHIP or by the smoothest convex curve. The noise is proportional to that of the tuning trials, and
scaled to the recorded SD of the verdict's paired differences. Each arm is tuned on its grid and
judged at the vertex of the parabola, on eight verdict seeds, by the paired t-test.

Designs are the registered grid with 3 tuning seeds; a grid with a random offset, with 3 or 6 tuning
seeds; and a second grid of five rates, spaced by a factor of 1.4 around the best rate of the first,
with 3 new tuning seeds. The first three designs have 240 combinations, with 4,000 studies each by
default (95% intervals of +-0.7 points at 5%).

The output is the false-positive rate in per cent, at 5% and at 0.25% (the first step of Holm's
method over 20 contrasts), without and with lack of fit in the standard error.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.interpolate import PchipInterpolator
from scipy.optimize import lsq_linear

from paribus import load_results
from paribus.analysis import analyse

KEPT = Path(__file__).parents[1] / "studies"
HALVES = ("embedding-factorial", "embedding-factorial-long")
RATE = "training.optimizer.learning_rate"
FINE = math.log(1.4) / math.log(10 / 4.6)  # a factor of 1.4 in steps of the registered grid
KNOTS = 20  # of a convex curve, for each step of the grid
LEAST_SD = 0.002  # of three tuning trials at one rate, in nats
VERDICT_SEEDS, DRAWS = 8, 400
NEIGHBOURS = np.arange(-1, 2)
LEVELS = (0.05, 0.0025)


@dataclass(frozen=True)
class Surface:
    """Loss and noise of an arm as functions of the position on the registered grid of rates.

    Attributes:
        loss: excess over the minimum loss, in nats.
        noise: SD of a trial, in nats.
        best: position of the minimum loss.
        n_rates: number of rates on the registered grid, at positions 0 to n_rates - 1.
    """

    loss: object
    noise: object
    best: float
    n_rates: int


@dataclass(frozen=True)
class Design:
    """Tuning design: number of seeds, random offset of the grid, and optional finer grid."""

    seeds: int
    shifted: bool
    finer: bool = False


DESIGNS = {
    "as registered, 3 tuning seeds": Design(3, shifted=False),
    "any grid, 3 tuning seeds": Design(3, shifted=True),
    "any grid, 6 tuning seeds": Design(6, shifted=True),
}
CURE = {"factor 1.4 around the best, 3 tuning seeds": Design(3, shifted=True, finer=True)}


def tuning_scores(half: str) -> dict[str, np.ndarray]:
    """Read the tuning losses of each arm, [rates in ascending order, tuning seeds]."""
    record = json.loads((KEPT / half / "tuning.json").read_text())
    rates = [candidate[RATE] for candidate in record["candidates"]]
    by_arm: dict[str, dict[float, list[float]]] = {}
    for trial in record["trials"]:
        by_rate = by_arm.setdefault(trial["arm"], {})
        by_rate.setdefault(rates[trial["candidate"] - 1], []).append(trial["value"])
    return {
        arm: np.array([by_rate[rate] for rate in sorted(by_rate)], dtype=float)
        for arm, by_rate in by_arm.items()
    }


def convex_curve(means: np.ndarray) -> PchipInterpolator:
    """Return the smoothest convex curve (least squared curvature) through `means` at 0, 1, ...

    Nonconvex means are approximated by least squares. The step size is 1 / KNOTS.
    """
    n = (len(means) - 1) * KNOTS + 1
    places = np.arange(n) / KNOTS
    # Loss = level + slope x + sum of curvature_j (x - x_j)+, with no curvature_j below 0.
    hinges = np.maximum(places[:, None] - places[None, 1:-1], 0.0)
    basis = np.hstack([np.ones((n, 1)), places[:, None], hinges])
    rows = np.vstack([1e4 * basis[::KNOTS], np.eye(n)[2:]])
    wanted = np.concatenate([1e4 * means, np.zeros(n - 2)])
    lower = np.concatenate([[-np.inf, -np.inf], np.zeros(n - 2)])
    fit = lsq_linear(rows, wanted, (lower, np.inf), method="bvls")
    return PchipInterpolator(places, basis @ fit.x)


def surface(scores: np.ndarray, kind: str) -> Surface:
    """Fit a surface to an arm's tuning losses `scores` [rates, tuning seeds].

    Args: kind: "PCHIP" or "convex".
    """
    places = np.arange(len(scores), dtype=float)
    curve = PchipInterpolator(places, scores.mean(1))
    if kind == "convex":
        curve = convex_curve(scores.mean(1))
    fine = np.linspace(0, places[-1], 20_001)
    losses = curve(fine)
    noise = PchipInterpolator(places, np.maximum(scores.std(1, ddof=1), LEAST_SD))
    least = float(losses.min())
    return Surface(lambda x: curve(x) - least, noise, float(fine[losses.argmin()]), len(places))


def at_recorded_sd(pair: list[Surface], sd: float) -> list[Surface]:
    """Scale the noise of both surfaces so that paired differences at the optima have SD `sd`."""
    now = math.hypot(*(float(arm.noise(arm.best)) for arm in pair))

    def scaled(arm: Surface) -> Surface:
        return Surface(arm.loss, lambda x: arm.noise(x) * sd / now, arm.best, arm.n_rates)

    return [scaled(arm) for arm in pair]


def parabolas(means: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slope, curvature and vertex of parabolas through `means` [..., 3] at -1, 0 and 1."""
    slope = (means[..., 2] - means[..., 0]) / 2
    curvature = (means[..., 0] + means[..., 2] - 2 * means[..., 1]) / 2
    bent = curvature > 0
    inside = np.clip(-slope / (2 * np.where(bent, curvature, 1.0)), -1, 1)
    return slope, curvature, np.where(bent, inside, -np.sign(slope))


def residual_variance(three: np.ndarray) -> np.ndarray:
    """Return the residual variance of [studies, 3, seeds] after additive rate and seed effects."""
    rest = three - three.mean(1, keepdims=True) - three.mean(2, keepdims=True)
    rest += three.mean((1, 2), keepdims=True)
    return (rest**2).sum((1, 2)) / (2 * (three.shape[2] - 1))


def losses_at_redrawn_vertices(
    rng: np.random.Generator, slope: np.ndarray, curvature: np.ndarray, sd, draws: int
) -> np.ndarray:
    """Return excess losses [studies, draws] at the vertices of parabolas through resampled means.

    Args: slope, curvature: fitted parabolas, [studies]. sd: SD of a tuning mean, [studies].
    """
    noise = rng.standard_normal((draws, 3)) * np.reshape(sd, (-1, 1, 1))
    means = np.stack([curvature - slope, np.zeros_like(slope), curvature + slope], 1)
    _, _, u = parabolas(means[:, None] + noise)
    return slope[:, None] * u + np.maximum(curvature, 0)[:, None] * u**2


def p_values(
    rng: np.random.Generator, pair: list[Surface], design: Design, studies: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values [studies] without and with lack of fit in the standard error."""
    offset = rng.uniform(-0.5, 0.5, (studies, 1)) if design.shifted else np.zeros((studies, 1))
    fits, runs, variances, gains = [], [], [], []
    for arm in pair:

        def trials(places, n, arm=arm):
            """Sample losses [studies, places, n]."""
            x = np.clip(places, 0, arm.n_rates - 1)[..., None]
            return arm.loss(x) + arm.noise(x) * rng.standard_normal((*places.shape, n))

        scores = trials(np.arange(arm.n_rates) + offset, design.seeds)
        middle, step = _middle(scores), 1.0
        places = middle + offset
        if design.finer:
            around = np.arange(-2, 3) * FINE
            scores = trials(places + around, design.seeds)
            middle, step = _middle(scores), FINE
            places = places + around[middle]
        three = np.take_along_axis(scores, (middle + NEIGHBOURS)[..., None], 1)
        slope, curvature, vertex = parabolas(three.mean(2))
        fits.append((slope, curvature))
        gains.append(slope * vertex + curvature * vertex**2)
        variances.append(residual_variance(three))
        runs.append(trials(places + step * vertex[:, None], VERDICT_SEEDS)[:, 0])
    sd = np.sqrt(np.mean(variances, axis=0) / design.seeds)
    lost = [losses_at_redrawn_vertices(rng, *fit, sd, DRAWS) for fit in fits]
    d = runs[1] - runs[0]
    squared = d.var(1, ddof=1) / VERDICT_SEEDS + (lost[1] - lost[0]).var(1, ddof=1)
    return tuple(
        2 * stats.t.sf(np.abs(d.mean(1)) / np.sqrt(squared + more), VERDICT_SEEDS - 1)
        for more in (0.0, gains[0] ** 2 + gains[1] ** 2)
    )


def _middle(scores: np.ndarray) -> np.ndarray:
    """Return the index of the best rate with two neighbours, [studies, 1]."""
    return np.clip(scores.mean(2).argmin(1), 1, scores.shape[1] - 2)[:, None]


def contrasts(half: str) -> list[tuple[str, str]]:
    """Return the 20 pairs (arm, reference) of one half of the factorial study."""
    arms = json.loads((KEPT / half / "study.json").read_text())["arms"]
    return [
        (arm, of["reference"]) for arm, of in arms.items() if of["reference"] not in (None, arm)
    ]


def recorded_sds(half: str) -> dict[str, float]:
    """Return the SD of paired differences in test loss, keyed by arm."""
    contrasts = analyse(load_results(KEPT / half)).contrasts
    return {contrast.arm: contrast.by_run.sd for contrast in contrasts if contrast.primary}


def main(studies: int = 4_000) -> None:
    """Print error rates per combination, and their minimum, median and maximum per design."""
    rates: dict[str, list[list[float]]] = {}
    for half in HALVES:
        scores, sds = tuning_scores(half), recorded_sds(half)
        for kind in ("PCHIP", "convex"):
            for number, (arm, reference) in enumerate(contrasts(half)):
                pair = [surface(scores[name], kind) for name in (reference, arm)]
                pair = at_recorded_sd(pair, sds[arm])
                for name, design in (DESIGNS | CURE).items():
                    rng = np.random.default_rng([number, len(half), len(kind), design.seeds])
                    p = p_values(rng, pair, design, studies)
                    row = [100 * float(np.mean(of < level)) for of in p for level in LEVELS]
                    rates.setdefault(name, []).append(row)
                    print(half, arm, kind, name, *(f"{rate:.2f}" for rate in row), flush=True)
    for name, rows in rates.items():
        table = np.array(rows)
        low, mid, high = table.min(0), np.median(table, 0), table.max(0)
        print(f"{name}: without at 5% {low[0]:.1f} to {high[0]:.1f} (median {mid[0]:.1f}), with")
        print(f"    {low[2]:.1f} to {high[2]:.1f} (median {mid[2]:.1f}); at 0.25% without up to")
        print(f"    {high[1]:.2f}, with up to {high[3]:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
