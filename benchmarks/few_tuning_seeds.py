"""Simulated error rates of tuned comparisons with one or two tuning seeds.

    python benchmarks/few_tuning_seeds.py [STUDIES]

Contrasts are LayerNorm and larger embedding steps against the plain arm, with tied and untied
output and with warmup. Loss curves and noise are fitted to the study `embedding-factorial` at 300
and 1,500 iterations, as in `lack_of_fit.py`; 6,000 iterations use the curves of 1,500.

Each arm is tuned on six rates spaced by a factor of 1.4, with a random offset from the optimum of
up to half a step, and judged at the vertex of the parabola through the best rate and its
neighbours. Because one or two tuning seeds are too few to estimate the noise, the pooled variance
of the verdict runs is used. The standard error of the contrast includes the tuning error, with and
without lack of fit.

The output is the false-positive rate at 5% for equally good arms, in per cent.
"""

from __future__ import annotations

import json
import math
import sys

import numpy as np
from lack_of_fit import (
    DRAWS,
    KEPT,
    NEIGHBOURS,
    RATE,
    Surface,
    losses_at_redrawn_vertices,
    parabolas,
    recorded_sds,
    surface,
    tuning_scores,
)
from scipy import stats

RATES = np.log([1.8e-3, 2.5e-3, 3.5e-3, 4.9e-3, 6.9e-3, 9.6e-3])
STEP = RATES[1] - RATES[0]
TREATMENTS, OUTPUTS = ("layernorm", "steps"), ("", "-untied")
# Half of the factorial, tuning seeds, verdict seeds.
DESIGNS = {
    "300 iterations": ("embedding-factorial", 2, 8),
    "300 iterations, one tuning seed": ("embedding-factorial", 1, 8),
    "1,500 iterations": ("embedding-factorial-long", 2, 6),
    "6,000 iterations": ("embedding-factorial-long", 1, 5),
}


def simulate(
    rng: np.random.Generator,
    pair: list[Surface],
    sd: float,
    registered: np.ndarray,
    n_tuning: int,
    n_verdict: int,
    studies: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values [studies] without and with lack of fit in the standard error.

    Args: pair: both arms. sd: SD of paired differences. registered: log rates of the grid.
    """
    scale = sd / math.hypot(*(float(arm.noise(arm.best)) for arm in pair))
    offset = rng.uniform(-0.5, 0.5, (studies, 1)) * STEP
    fits, runs = [], []
    for arm in pair:

        def losses(log_rates, n, arm=arm):
            """Sample losses [..., n] at log rates of any shape."""
            places = np.interp(log_rates, registered, np.arange(arm.n_rates))[..., None]
            noise = rng.standard_normal((*log_rates.shape, n))
            return arm.loss(places) + scale * arm.noise(places) * noise

        means = losses(RATES + offset, n_tuning).mean(2)
        middle = np.clip(means.argmin(1), 1, len(RATES) - 2)[:, None]
        fits.append(parabolas(np.take_along_axis(means, middle + NEIGHBOURS, 1)))
        chosen = RATES[middle[:, 0]] + offset[:, 0] + STEP * fits[-1][2]
        runs.append(losses(chosen, n_verdict))
    trial_variance = (runs[0].var(1, ddof=1) + runs[1].var(1, ddof=1)) / 2
    lost = [
        losses_at_redrawn_vertices(rng, slope, curvature, np.sqrt(trial_variance / n_tuning), DRAWS)
        for slope, curvature, _ in fits
    ]
    gains = [slope * vertex + curvature * vertex**2 for slope, curvature, vertex in fits]
    d = runs[1] - runs[0]
    squared = d.var(1, ddof=1) / n_verdict + (lost[1] - lost[0]).var(1, ddof=1)
    return tuple(
        2 * stats.t.sf(np.abs(d.mean(1)) / np.sqrt(squared + more), n_verdict - 1)
        for more in (0.0, gains[0] ** 2 + gains[1] ** 2)
    )


def main(studies: int = 4_000) -> None:
    """Print error rates per design, curve type and contrast, and the maximum."""
    worst = [0.0, 0.0]
    for title, (half, n_tuning, n_verdict) in DESIGNS.items():
        scores, sds = tuning_scores(half), recorded_sds(half)
        record = json.loads((KEPT / half / "tuning.json").read_text())
        registered = np.log(sorted(candidate[RATE] for candidate in record["candidates"]))
        for kind in ("PCHIP", "convex"):
            for output in OUTPUTS:
                for treatment in TREATMENTS:
                    names = [f"{arm}{output}-warm" for arm in ("none", treatment)]
                    pair = [surface(scores[name], kind) for name in names]
                    rng = np.random.default_rng([n_tuning, n_verdict, len(kind), len(names[1])])
                    p = simulate(rng, pair, sds[names[1]], registered, n_tuning, n_verdict, studies)
                    errors = [100 * float(np.mean(p_of < 0.05)) for p_of in p]
                    worst = np.maximum(worst, errors)
                    print(title, names[1], kind, *(f"{error:.1f}" for error in errors), flush=True)
    print(f"maximum: {worst[0]:.1f} without lack of fit, {worst[1]:.1f} with it")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
