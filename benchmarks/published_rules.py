"""Not a speed: how often the rules by which others accept a result accept one that is not there.

    python benchmarks/published_rules.py [STUDIES]

Track 3 of modded-nanogpt: z-test of the mean against 3.28 with a known standard deviation. Its
rules allow to look at every 25 steps and to state the earliest one that passes, the same for all
trials; an error is to state a step at which the true mean is not below 3.28. What is simulated is
what the logs show: values of one trial 25 steps apart are correlated by .9998 (median of 20
results; the least .995), and the loss falls by some 0.0011 between them (0.00065 to 0.0022). And
what the rules leave open: trials added one by one until it passes. Track 1 tests by Student's t,
p < .01, n not fixed.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats

SEED = 20261125
TARGET_GAIN, SIGMA = 0.004, 0.0013  # what Track 3 requires; what it takes as known
POOLED = 0.00111  # the standard deviation between trials in the logs
DROP = 0.0011  # of the loss between two looks
LOOKS = 12
BATCH = 20_000


def track3(
    studies: int,
    trials: int,
    *,
    sd: float = SIGMA,
    looks: int = 1,
    correlation: float = 0.9998,
    drop: float = DROP,
    add_trials: bool = False,
) -> float:
    """Return how often a study states a step at which the true mean is not below 3.28.

    The true mean is 3.28 at the last such step, the worst case, and higher at those before. Trials
    are `trials`, or are added one by one up to that.
    """
    rng = np.random.default_rng(SEED)
    above = drop * np.arange(looks)[::-1]  # of the true mean at each look over 3.28
    wrong = 0
    for start in range(0, studies, BATCH):
        size = min(BATCH, studies - start)
        # A trial's noise from look to look: an autoregression of that correlation.
        noise = rng.standard_normal((size, trials, looks)) * sd
        for look in range(1, looks):
            noise[..., look] *= np.sqrt(1 - correlation**2)
            noise[..., look] += correlation * noise[..., look - 1]
        counts = np.arange(1, trials + 1)[:, None]
        means = np.cumsum(noise + above, axis=1) / counts
        passes = -means * np.sqrt(counts) >= TARGET_GAIN
        wrong += (passes if add_trials else passes[:, -1:]).any(axis=(1, 2)).sum()
    return wrong / studies


def track1(studies: int, trials: int, *, add_trials: bool = False, level: float = 0.01) -> float:
    """Return how often Student's t accepts a mean of exactly 3.28."""
    rng = np.random.default_rng(SEED)
    wrong = 0
    for start in range(0, studies, BATCH):
        values = rng.standard_normal((min(BATCH, studies - start), trials))
        n = np.arange(1, trials + 1)
        mean = np.cumsum(values, axis=1) / n
        square = np.cumsum(values**2, axis=1) - n * mean**2
        with np.errstate(divide="ignore", invalid="ignore"):
            t = -mean / np.sqrt(square / (n - 1) / n)
        passes = (t > stats.t.isf(level, np.maximum(n - 1, 1)))[:, 1:]
        wrong += (passes if add_trials else passes[:, -1:]).any(axis=1).sum()
    return wrong / studies


def main() -> None:
    """Print the table of error rates, each with its standard error."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    print(f"{studies:,} studies each, seed {SEED}\n")
    print("| rule | what is chosen | trials | error |")
    print("| --- | --- | --- | --- |")
    many = "the earliest of 12 steps that passes"
    for trials in (1, 8, 20):
        for said, looks, options in (
            ("nothing: one step", 1, {}),
            (many, LOOKS, {}),
            (f"{many}, correlated by .995", LOOKS, {"correlation": 0.995}),
            (f"{many}, the loss falling half as fast", LOOKS, {"drop": DROP / 2}),
            (f"{many}, standard deviation {POOLED}", LOOKS, {"sd": POOLED}),
        ):
            rate = track3(studies, trials, looks=looks, **options)
            _print("Track 3", said, str(trials), rate, studies)
    for most in (10, 20, 30):
        for sd in (SIGMA, POOLED):
            rate = track3(studies, most, sd=sd, add_trials=True)
            said = f"trials added until it passes, standard deviation {sd}"
            _print("Track 3", said, f"up to {most}", rate, studies)
    for trials in (5, 10):
        _print("Track 1", "nothing", str(trials), track1(studies, trials), studies)
    for most in (5, 10, 20):
        rate = track1(studies, most, add_trials=True)
        _print("Track 1", "trials added until it passes, from 2", f"up to {most}", rate, studies)


def _print(rule: str, chosen: str, trials: str, rate: float, studies: int) -> None:
    error = np.sqrt(rate * (1 - rate) / studies)
    print(f"| {rule} | {chosen} | {trials} | {rate:.5f} (± {error:.5f}) |", flush=True)


if __name__ == "__main__":
    main()
