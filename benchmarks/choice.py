"""Simulated error rates of tuned comparisons, with and without the error from tuning.

    python benchmarks/choice.py [STUDIES]

Two arms, each at the best of seven learning rates on a few tuning seeds, are compared on 5 to 20
verdict seeds by the paired t-test. Loss curves and noise are fitted to two archived studies; grids
have random offsets. The output, in per cent, is the false-positive rate for equal arms (`naive`
treats the best rate as fixed, `choice` is `inference.choice = "propagated"`); the coverage of the
interval of `choice`; the rate of SAME if the true difference equals the margin; and the power at
that difference. With 10,000 studies per setting, the 95% interval at 5% is +-0.4 points.

    python benchmarks/choice.py several [STUDIES]

also tunes the warmup, which shifts the best rate and has an optimum. Candidates are a grid of five
rates by three warmups, with each arm judged at its best warmup and the fitted optimal rate; or 16
points of a Sobol sequence, with each arm judged at its best point and the error estimated by
resampling tuning seeds. "moved" arms have different optimal rates and warmups.
"""

import math
import sys

import numpy as np
from scipy import stats
from scipy.interpolate import CubicSpline, PchipInterpolator
from scipy.stats import qmc

from paribus.statistics import TunedArm, best_of, parabola, redrawn_error, vertex_error

RATES, MARGIN, SIZES = 7, 0.02, (5, 8, 12, 20)
PLACES = np.arange(8.0)
# Mean tuning loss by rate, the SD between seeds that both arms share, and that of a single run.
REGIMES = {
    "300 iterations": (
        [2.7493, 2.5658, 2.4681, 2.4079, 2.3619, 2.3292, 2.3406, 2.42],
        0.009,
        [0.005, 0.005, 0.005, 0.005, 0.006, 0.0105, 0.012, 0.03],
    ),
    "1,500 iterations": (
        [2.5269, 2.3919, 2.1746, 1.8768, 1.6793, 1.6500, 1.6520, 1.8525],
        0.006,
        [0.008, 0.008, 0.008, 0.008, 0.012, 0.022, 0.026, 0.15],
    ),
}
# Distance of the arms' optima in grid steps, noise of the second arm, true difference.
ARMS = {"equal": (0.0, 1.0), "moved": (0.5, 1.0), "noisier": (0.0, 1.5)}


def study(rng, regime, seeds, moved, noisier, effect):
    """Simulate a study; return {n: (naive p < 5%, p < 5%, TOST p < 5%, interval covers effect)}."""
    mean, between, spread = REGIMES[regime]
    curve, noise = CubicSpline(PLACES, mean), PchipInterpolator(PLACES, spread)
    least = curve(np.linspace(3, 7, 4001)).min()
    grid, offset = np.arange(RATES, dtype=float), rng.uniform()
    shift = rng.choice([-1, 1]) * moved
    shared = between * rng.standard_normal(seeds + max(SIZES))
    fits, best_runs, vertex_runs = [], [], []
    for arm in (0, 1):

        def at(x, arm=arm):
            return np.clip(x + offset + shift * arm, 0.0, 7.0)

        def runs(x, seed_effects, arm=arm, at=at):
            place = at(np.atleast_1d(x))[:, None]
            draws = rng.standard_normal((len(place), len(seed_effects)))
            found = curve(place) - least + effect * arm + seed_effects
            return found + draws * noise(place) * (noisier if arm else 1.0)

        tried = runs(grid, shared[:seeds])
        best = best_of(tried)
        fit, vertex = around_best(grid, tried)
        fits.append(fit)
        best_runs.append(runs(best, shared[seeds:])[0])
        vertex_runs.append(runs(vertex, shared[seeds:])[0])
    choice = vertex_error([[fits[0]], [fits[1]]], seed=int(rng.integers(2**31)), draws=1_000)
    naive, with_choice = best_runs[1] - best_runs[0], vertex_runs[1] - vertex_runs[0]
    found = {}
    for n in SIZES:
        d, e = naive[:n], with_choice[:n]
        error = math.hypot(e.std(ddof=1) / math.sqrt(n), choice)
        half = stats.t.isf(0.025, n - 1) * error
        t = d.mean() / (d.std(ddof=1) / math.sqrt(n))
        same = stats.t.sf((MARGIN - abs(e.mean())) / error, n - 1)
        found[n] = (
            2 * stats.t.sf(abs(t), n - 1) < 0.05,
            2 * stats.t.sf(abs(e.mean()) / error, n - 1) < 0.05,
            same < 0.05,
            abs(e.mean() - effect) <= half,
        )
    return found


def around_best(grid, tried):
    """Fit a parabola to the best rate and its neighbours; return the fit and its vertex."""
    middle = min(max(int(best_of(tried)), 1), len(grid) - 2)
    rows = [middle - 1, middle, middle + 1]
    fit = TunedArm(grid[rows], tried[rows], tried[rows])
    return fit, parabola(grid[rows], tried[rows].mean(1)).vertex


WARMUP_MOVES, WARMUP_COSTS = 0.8, 0.04  # the best rate in grid steps; nats at the far end
LISTED = "16 Sobol points"
FIVE_BY_THREE = np.array([(rate, warmup) for rate in range(3, 8) for warmup in (0.0, 0.5, 1.0)])


def study_of_two_keys(rng, regime, seeds, moved, space):
    """Simulate a study of equal arms; return {n: (naive p < 5%, p < 5%)} by number of seeds."""
    mean, between, spread = REGIMES[regime]
    curve, noise = CubicSpline(PLACES, mean), PchipInterpolator(PLACES, spread)
    least, offset = curve(np.linspace(3, 7, 4001)).min(), rng.uniform(-0.5, 0.5)
    points = FIVE_BY_THREE
    if space == LISTED:
        points = 2.5 + qmc.Sobol(2, rng=int(rng.integers(2**31))).random(16) * (5.0, 1.0)
        points[:, 1] -= 2.5
    shift = rng.choice([-1, 1]) * (0.5 if moved else 0.0)
    best_warmup = rng.uniform(size=2) if moved else np.repeat(rng.uniform(), 2)
    shared = between * rng.standard_normal(seeds + max(SIZES))
    tried, fits, best_runs, runs = [], [], [], []
    for arm in (0, 1):

        def trials(points, seed_effects, arm=arm):
            rate = points[:, 0] + offset - WARMUP_MOVES * (points[:, 1] - 0.5) + shift * arm
            place = np.clip(rate, 0.0, 7.0)[:, None]
            far = (points[:, 1] - best_warmup[arm]) ** 2
            draws = rng.standard_normal((len(points), len(seed_effects)))
            found = curve(place) - least + WARMUP_COSTS * far[:, None] + seed_effects
            return found + draws * noise(place)

        scores = trials(points, shared[:seeds])
        best = best_of(scores)
        at = points[best]
        tried.append((scores, scores))
        best_runs.append(trials(at[None], shared[seeds:])[0])
        if points is FIVE_BY_THREE:
            fits.append(parabolas(scores, int(best) % 3))
            vertex = parabola(fits[-1][0].x, np.mean(fits[-1][0].chooses, 1)).vertex
            at = np.array([vertex, at[1]])
        runs.append(trials(at[None], shared[seeds:])[0])
    about = {"seed": int(rng.integers(2**31)), "draws": 500}
    error = vertex_error if fits else redrawn_error
    choice = error(fits or tried, **about)
    naive, with_choice = best_runs[1] - best_runs[0], runs[1] - runs[0]
    found = {}
    for n in SIZES:
        found[n] = [
            2 * stats.t.sf(abs(d.mean()) / math.hypot(d.std(ddof=1) / math.sqrt(n), by), n - 1)
            < 0.05
            for d, by in ((naive[:n], 0.0), (with_choice[:n], choice))
        ]
    return found


def parabolas(scores, warmup):
    """Return the parabola fits at each warmup, starting with the selected warmup."""
    found = []
    for at in (warmup, *({0, 1, 2} - {warmup})):
        rows = scores[at::3]
        middle = min(max(best_of(rows), 1), len(rows) - 2)
        three = rows[middle - 1 : middle + 2]
        found.append(TunedArm(np.arange(middle - 1, middle + 2) + 3.0, three, three))
    return found


def several(studies: int = 10_000) -> None:
    """Print false-positive rates for tuning the learning rate and the warmup."""
    print("regime, tuning seeds, candidates, arms: at n =", *SIZES, flush=True)
    for regime in REGIMES:
        for seeds in (3, 6):
            for space in ("5 x 3 grid", LISTED):
                for moved in (False, True):
                    rng = np.random.default_rng([seeds, len(space), len(regime), moved])
                    cell = (regime, seeds, moved, space)
                    null = [study_of_two_keys(rng, *cell) for _ in range(studies)]
                    rates = {n: 100 * np.mean([one[n] for one in null], axis=0) for n in SIZES}
                    line = "  ".join(
                        f"naive {r[0]:4.1f} choice {r[1]:4.1f}" for r in rates.values()
                    )
                    arms = "moved" if moved else "equal"
                    print(f"{regime}, {seeds}, {space}, {arms}: {line}", flush=True)


def main() -> None:
    """Print the table selected on the command line."""
    arguments = sys.argv[1:]
    table = several if arguments[:1] == ["several"] else one_key
    table(*map(int, arguments[table is several :]))


def one_key(studies: int = 10_000) -> None:
    """Print error rates for tuning only the learning rate."""
    print("regime, tuning seeds, arms: at n =", *SIZES, flush=True)
    for regime in REGIMES:
        for seeds in (3, 6, 10):
            for arms, (moved, noisier) in ARMS.items():
                rng = np.random.default_rng([seeds, len(arms), len(regime)])
                null = [study(rng, regime, seeds, moved, noisier, 0.0) for _ in range(studies)]
                rates = {n: 100 * np.mean([one[n] for one in null], axis=0) for n in SIZES}
                line = "  ".join(
                    f"naive {r[0]:4.1f} choice {r[1]:4.1f} covers {r[3]:4.1f}"
                    for r in rates.values()
                )
                print(f"{regime}, {seeds}, {arms}: {line}", flush=True)
            rng = np.random.default_rng([seeds, 7])
            true = [study(rng, regime, seeds, 0.0, 1.0, MARGIN) for _ in range(studies)]
            rates = {n: 100 * np.mean([one[n] for one in true], axis=0) for n in SIZES}
            line = "  ".join(
                f"power {r[1]:4.1f} (naive {r[0]:4.1f}) SAME {r[2]:4.1f}" for r in rates.values()
            )
            print(f"{regime}, {seeds}, effect {MARGIN}: {line}", flush=True)


if __name__ == "__main__":
    main()
