"""How long the whole analysis of a study takes, on one core.

    python benchmarks/analysis_speed.py

Scores are synthetic: arms x seeds x tasks x items, right or wrong. Every arm is compared with the
first, by the parts that a report has.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import get_args

os.environ["OMP_NUM_THREADS"] = "1"  # one core; read when numpy is first imported
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from paribus.statistics import (
    RESAMPLES,
    Target,
    holm,
    macro_contrast,
    max_statistic_sign_flip,
    paired_contrast,
)

MARGIN = 0.01
TARGET_SECONDS = 10.0


def synthetic_arm(rng: np.random.Generator, shape: tuple[int, int, int], gain: float) -> list:
    """K tasks of shape (S, I): 1 where a seed answers an item, with seeds and items that differ."""
    n_tasks, n_seeds, n_items = shape
    seeds = rng.normal(0, 0.02, size=(n_seeds, 1))
    chances = [rng.uniform(0.2, 0.8, size=(1, n_items)) + seeds + gain for _ in range(n_tasks)]
    return [(rng.random((n_seeds, n_items)) < chance).astype(float) for chance in chances]


def analyse(arms: list[list[np.ndarray]], resamples: int) -> dict[str, float]:
    """Seconds per part of the analysis."""
    baseline, *treatments = arms
    seconds: dict[str, float] = {}

    def timed(part: str, work):
        start = time.perf_counter()
        result = work()
        seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - start
        return result

    def by_task(treatment: list[np.ndarray]) -> list:
        return [
            paired_contrast(a.mean(1), b.mean(1), margin=MARGIN, seed=0, resamples=resamples)
            for a, b in zip(baseline, treatment, strict=True)
        ]

    contrasts = []
    for treatment in treatments:
        contrasts += timed("contrast of every task", lambda t=treatment: by_task(t))
        for target in get_args(Target):
            timed(
                f"macro contrast, {target}",
                lambda t=treatment, target=target: macro_contrast(
                    baseline, t, target=target, margin=MARGIN, seed=0, resamples=resamples
                ),
            )
    timed("Holm", lambda: holm([contrast.decided.p_value for contrast in contrasts]))
    deltas = np.array([[pair.delta for pair in contrast.pairs] for contrast in contrasts]).T
    timed(
        "maximum-statistic sign flip",
        lambda: max_statistic_sign_flip(deltas, seed=0, resamples=resamples),
    )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (options.tasks, options.seeds, options.items)
    arms = [synthetic_arm(rng, shape, 0.005 * arm) for arm in range(options.arms)]
    seconds = analyse(arms, options.resamples)
    print(
        f"{options.arms} arms x {options.seeds} seeds x {options.tasks} tasks x "
        f"{options.items:,} items, {options.resamples:,} resamples"
    )
    for part, spent in {**seconds, "total": sum(seconds.values())}.items():
        print(f"  {part:<34} {spent:7.2f} s")
    print(f"  {'target':<34} {TARGET_SECONDS:7.2f} s")


if __name__ == "__main__":
    main()
