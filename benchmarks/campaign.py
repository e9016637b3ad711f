"""Simulated campaigns: what nights of 50 ideas keep, by the rule of `paribus campaign` and by two
others.

    python benchmarks/campaign.py [NIGHTS]

All ideas of a night are compared with one baseline at the same seeds, so that their contrasts are
correlated by 0.5. In units of the SD of a run around its seed's mean; seeds have that SD too. An
idea passes the screen where its mean change at two seeds is for the better, and is then tested at 5
or 10 fresh seeds by the paired t at the level of LORD++ (alpha .05, wealth .025). `one seed` keeps
what is better on one run, `2 sigma` what is better there by twice the baseline's SD over five runs.
Of 50 null ideas, and of 45 null with 5 real of a stated effect at random places, printed: nights
with anything false, the mean share of false among what was kept (the false discovery rate), both
with their 95% interval, what was kept falsely and found in a night, and trials trained in it.
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
    """Nights x ideas: what was kept, what was real; trials of each night."""

    kept: NDArray[np.bool_]
    real: NDArray[np.bool_]
    trials: NDArray[np.float64]

    @property
    def false_share(self) -> NDArray[np.float64]:
        """[nights]: the share of null ideas among those kept; 0 where none was."""
        return (self.kept & ~self.real).sum(1) / np.maximum(self.kept.sum(1), 1)

    @property
    def any_false(self) -> NDArray[np.bool_]:
        """[nights]: whether a null idea was kept."""
        return np.asarray((self.kept & ~self.real).any(1))


def contrasts(rng, effects, seeds):
    """Return [nights, ideas, seeds]: changes against one baseline; below 0 is better."""
    nights = len(effects)
    baseline = rng.standard_normal((nights, 1, seeds))
    return rng.standard_normal((*effects.shape, seeds)) - baseline - effects[..., None]


def night(rng, nights, effect, real=REAL, ideas=IDEAS):
    """Return [nights, ideas]: the effect of every idea, `real` of them at random places."""
    places = rng.permuted(np.tile(np.arange(ideas) < real, (nights, 1)), axis=1)
    return np.where(places, effect, 0.0)


def campaign(rng, effects, seeds=5, *, every=False):
    """Screen, then confirm; with `every`, what the screen drops takes a place of the rule too."""
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
    """Keep what is better on one run."""
    kept = contrasts(rng, effects, 1)[..., 0] < 0
    return Kept(kept, effects > 0, np.full(len(kept), effects.shape[1] + 1.0))


def two_sigma(rng, effects, seeds=5):
    """Keep what is better on one run by twice the SD of the baseline's runs, seeds and all."""
    runs = np.sqrt(2) * rng.standard_normal((len(effects), 1, seeds))
    kept = contrasts(rng, effects, 1)[..., 0] < -2 * runs.std(axis=2, ddof=1)
    return Kept(kept, effects > 0, np.full(len(kept), effects.shape[1] + float(seeds)))


RULES = {
    "campaign, 5 seeds": lambda rng, e: campaign(rng, e, 5),
    "campaign, 10 seeds": lambda rng, e: campaign(rng, e, 10),
    "... dropped ones spend too": lambda rng, e: campaign(rng, e, 10, every=True),
    "one seed": one_seed,
    "2 sigma": two_sigma,
}


def main(nights: int) -> None:
    """Print the tables."""
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
