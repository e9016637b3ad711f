"""Simulated error rates and power of campaigns with 50 ideas, against two naive rules.

    python benchmarks/campaign.py [NIGHTS]

All ideas of a campaign (a "night") are compared with one baseline on the same seeds, so their
contrasts have a correlation of 0.5. The unit is the within-seed SD of a run, which is also the SD
between seeds. An idea passes screening if its mean change on two seeds is an improvement; it is
then tested on 5 or 10 new seeds by the paired t-test at the level of LORD++ (alpha 0.05, wealth
0.025). `one seed` keeps ideas that improve on one run; `2 sigma` keeps those that improve by twice
the baseline's SD over five runs. Simulations have 50 null ideas, or 45 null and 5 real ideas in
random order. The output is the share of nights with a false discovery, the false discovery rate
(both with 95% intervals), and the numbers of false and true discoveries and of trials per night.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from paribus.statistics import Lord

IDEAS, REAL, SCREEN = 50, 5, 2
ALPHA, WEALTH = 0.05, 0.025


@dataclass(frozen=True)
class Kept:
    """Simulation results: flags kept and real [nights, ideas], and number of trials [nights]."""

    kept: NDArray[np.bool_]
    real: NDArray[np.bool_]
    trials: NDArray[np.float64]

    @property
    def false_share(self) -> NDArray[np.float64]:
        """Share of null ideas among kept ideas [nights], 0 if no idea was kept."""
        return (self.kept & ~self.real).sum(1) / np.maximum(self.kept.sum(1), 1)

    @property
    def any_false(self) -> NDArray[np.bool_]:
        """Whether any null idea was kept [nights]."""
        return np.asarray((self.kept & ~self.real).any(1))


def contrasts(rng, effects, seeds):
    """Sample changes against the baseline [nights, ideas, seeds]; negative is better."""
    nights = len(effects)
    baseline = rng.standard_normal((nights, 1, seeds))
    return rng.standard_normal((*effects.shape, seeds)) - baseline - effects[..., None]


def night(rng, nights, effect, real=REAL, ideas=IDEAS):
    """Sample true effects [nights, ideas], with `real` nonzero effects in random order."""
    places = rng.permuted(np.tile(np.arange(ideas) < real, (nights, 1)), axis=1)
    return np.where(places, effect, 0.0)


def campaign(rng, effects, seeds=5, *, every=False):
    """Simulate campaigns; with `every`, ideas that fail screening also count as LORD++ tests."""
    screened = contrasts(rng, effects, SCREEN).mean(2) < 0
    deltas = contrasts(rng, effects, seeds)
    t = deltas.mean(2) / deltas.std(axis=2, ddof=1) * np.sqrt(seeds)
    p = np.where(t < 0, 2 * stats.t.cdf(t, seeds - 1), 1.0)
    kept = np.zeros(effects.shape, bool)
    rule = Lord(ALPHA, WEALTH)
    for k, row in enumerate(np.where(screened, p, 1.0)):
        found = []
        for idea in range(len(row)) if every else np.flatnonzero(screened[k]):
            kept[k, idea] = row[idea] <= rule.next_level(found)
            found.append(kept[k, idea])
    n_ideas = effects.shape[1]
    trials = SCREEN * (n_ideas + 1) + seeds * (screened.sum(1) + 1.0)
    return Kept(kept, effects > 0, trials)


def one_seed(rng, effects):
    """Simulate a rule that keeps ideas that improve on one run."""
    kept = contrasts(rng, effects, 1)[..., 0] < 0
    return Kept(kept, effects > 0, np.full(len(kept), effects.shape[1] + 1.0))


def two_sigma(rng, effects, seeds=5):
    """Simulate a rule that keeps ideas that improve by twice the SD of baseline runs."""
    runs = np.sqrt(2) * rng.standard_normal((len(effects), 1, seeds))
    kept = contrasts(rng, effects, 1)[..., 0] < -2 * runs.std(axis=2, ddof=1)
    return Kept(kept, effects > 0, np.full(len(kept), effects.shape[1] + float(seeds)))


RULES = {
    "campaign, 5 seeds": lambda rng, e: campaign(rng, e, 5),
    "campaign, 10 seeds": lambda rng, e: campaign(rng, e, 10),
    "... counting dropped ideas": lambda rng, e: campaign(rng, e, 10, every=True),
    "one seed": one_seed,
    "2 sigma": two_sigma,
}


def main(nights: int) -> None:
    """Print one table per effect size."""
    for real, effect in ((0, 0.0), (REAL, 2.0), (REAL, 4.0)):
        print(f"\n{IDEAS - real} null, {real} real" + (f" of {effect:g} SD" if real else ""))
        print(f"{'':27}{'any false, %':>18}{'FDR, %':>18}{'false':>8}{'found':>8}{'trials':>8}")
        for name, rule in RULES.items():
            rng = np.random.default_rng([7, real, int(effect)])
            told = rule(rng, night(rng, nights, effect, real))
            low, high = stats.binomtest(int(told.any_false.sum()), nights).proportion_ci()
            share, error = told.false_share.mean(), told.false_share.std() / nights**0.5
            cells = [
                f"{told.any_false.mean():.1%} [{low * 100:.1f}, {high * 100:.1f}]",
                f"{share:.1%} +-{196 * error:.1f}",
                f"{(told.kept & ~told.real).sum(1).mean():.2f}",
                f"{(told.kept & told.real).sum(1).mean():.2f}",
                f"{told.trials.mean():.0f}",
            ]
            print(f"{name:27}{cells[0]:>18}{cells[1]:>18}{''.join(f'{c:>8}' for c in cells[2:])}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
