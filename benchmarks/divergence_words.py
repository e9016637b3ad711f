"""Simulated error rates and power of verdicts when some runs diverge.

    python benchmarks/divergence_words.py [TABLES]

Two arms have the same loss distribution and 5, 10 or 20 runs each, paired or unpaired. Runs diverge
at a given rate per arm: at random, at the highest losses of the arm (`hard runs`, which makes
survivors look too good), or at the hardest seeds of both arms (`hard seeds`). Pairs share half of
their variance (SHARED). Gains are in units of the SD of a run or, for pairs, of a difference.

The output is the rate of BETTER and WORSE in per cent, for four treatments of diverged runs if
divergence rates do not differ significantly. `survivors`: exclude them. `worst`: exclude them, and
require the same result with them at the worst finite score (the method of paribus). `untrained`:
likewise, at the score of an untrained model, 100 SD away. `ranks`: likewise, with a rank t-test.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from paribus.decision import Evidence, State, word_of
from paribus.statistics import DESCRIPTIVE_BELOW, fisher_exact, mcnemar, paired_t, welch

SEED, ALPHA = 20261127, 0.05
SHARED = 0.5  # of the variance of paired runs
UNTRAINED = 100.0  # the score of an untrained model, in SD
SIZES = (5, 10, 20)
RATES = ((0.0, 0.0), (0.05, 0.05), (0.2, 0.2), (0.5, 0.0), (0.0, 0.5))  # baseline, arm
GAIN = 5.0  # SD
RULES = ("survivors", "worst", "untrained", "ranks")
Cause = Literal["chance", "hard runs", "hard seeds"]
Quality = Literal["Q+", "Q-", "Q?"]


class Arms(NamedTuple):
    """Losses [n] and divergence flags [n] of the runs of both arms."""

    baseline: np.ndarray
    treatment: np.ndarray
    baseline_diverged: np.ndarray
    treatment_diverged: np.ndarray


def draw(
    rng: np.random.Generator,
    n: int,
    rates: tuple[float, float],
    cause: Cause,
    *,
    paired: bool,
    gain: float = 0.0,
) -> Arms:
    """Sample runs of both arms, with the treatment's losses lower by `gain` SDs."""
    seeds = rng.standard_normal((2, n))
    if paired:
        seeds[1] = seeds[0]
    losses = math.sqrt(SHARED) * seeds + math.sqrt(1 - SHARED) * rng.standard_normal((2, n))
    hardness = {"chance": rng.standard_normal((2, n)), "hard runs": losses, "hard seeds": seeds}
    diverged = hardness[cause] > stats.norm.ppf(1 - np.array(rates))[:, None]
    losses[1] -= gain * (math.sqrt(2 * (1 - SHARED)) if paired else 1.0)
    return Arms(*losses, *diverged)


def events(arms: Arms, *, paired: bool) -> tuple[float, int, int]:
    """Return the exact p-value for equal divergence rates, and the counts of both arms."""
    theirs, ours = arms.baseline_diverged, arms.treatment_diverged
    counts = int(theirs.sum()), int(ours.sum())
    if paired:
        return mcnemar(int((theirs & ~ours).sum()), int((ours & ~theirs).sum())), *counts
    return fisher_exact(*counts, len(theirs), len(ours)), *counts


def quality(baseline: np.ndarray, treatment: np.ndarray, *, paired: bool) -> Quality:
    """Test the difference in mean loss; return "Q+" (better), "Q-" (worse) or "Q?"."""
    if min(len(baseline), len(treatment)) < DESCRIPTIVE_BELOW:
        return "Q?"
    test = paired_t(treatment - baseline) if paired else welch(baseline, treatment)
    if test.p_value() > ALPHA:
        return "Q?"
    return "Q-" if test.mean > 0 else "Q+"


def survivors(arms: Arms, *, paired: bool) -> Quality:
    """Test the difference in mean loss without diverged runs, or pairs with a diverged run."""
    kept = ~arms.baseline_diverged, ~arms.treatment_diverged
    if paired:
        kept = (kept[0] & kept[1],) * 2
    return quality(arms.baseline[kept[0]], arms.treatment[kept[1]], paired=paired)


def counted(arms: Arms, rule: str, *, paired: bool) -> Quality:
    """Test the difference in mean loss with diverged runs replaced according to `rule`."""
    gone = np.stack([arms.baseline_diverged, arms.treatment_diverged])
    losses = np.stack([arms.baseline, arms.treatment])
    losses[gone] = UNTRAINED if rule == "untrained" else losses[~gone].max()
    if rule == "ranks":
        losses[gone] += 1  # below all others
        losses = stats.rankdata(losses).reshape(losses.shape)
    return quality(*losses, paired=paired)


def words(arms: Arms, *, paired: bool) -> dict[str, str]:
    """Return the verdict label on the treatment for each of RULES."""
    p, theirs, ours = events(arms, paired=paired)
    n, seen = len(arms.baseline), survivors(arms, paired=paired)
    differs = p <= ALPHA
    found = {}
    for rule in RULES:
        shown = seen
        if not differs and rule != "survivors" and theirs + ours and seen != "Q?":
            shown = seen if counted(arms, rule, paired=paired) == seen else "Q?"
        state = State(
            quality=shown,
            not_worse=False,
            baseline_stable=True,
            fix="unshown" if not differs else "harm" if ours > theirs else "fix",
            collapse=ours - theirs == n,
            budget="within",
            benefit="not shown",
            divergence="more" if ours > theirs else "fewer" if ours < theirs else "equal",
            elsewhere="not worse",
        )
        found[rule] = word_of(Evidence("", n, state))
    return found


def rates_of(
    n: int,
    rates: tuple[float, float],
    cause: Cause,
    *,
    paired: bool,
    tables: int,
    gain: float = 0.0,
) -> dict[str, Counter[str]]:
    """Simulate studies; return the number of times each verdict label occurs, per rule."""
    rng = np.random.default_rng([SEED, n, paired, *(int(100 * rate) for rate in rates)])
    found: dict[str, Counter[str]] = {rule: Counter() for rule in RULES}
    for _ in range(tables):
        arms = draw(rng, n, rates, cause, paired=paired, gain=gain)
        for rule, word in words(arms, paired=paired).items():
            found[rule][word] += 1
    return found


def cells() -> Iterator[tuple[bool, Cause]]:
    """Yield combinations of pairing and cause of divergence ("hard seeds" only if paired)."""
    causes: dict[bool, tuple[Cause, ...]] = {
        False: ("chance", "hard runs"),
        True: ("chance", "hard runs", "hard seeds"),
    }
    for paired, every in causes.items():
        for cause in every:
            yield paired, cause


def main(tables: int) -> None:
    """Print the tables without and with a gain."""
    for gain, every in ((0.0, RATES), (GAIN, ((0.05, 0.05), (0.2, 0.2)))):
        print(f"gain {gain:g} SD, {tables:,} simulations each: BETTER / WORSE, per cent")
        for paired, cause in cells():
            for rates in every:
                for n in SIZES:
                    found = rates_of(n, rates, cause, paired=paired, tables=tables, gain=gain)
                    shown = "  ".join(
                        f"{rule} {100 * said['BETTER'] / tables:.1f}/"
                        f"{100 * said['WORSE'] / tables:.1f}"
                        for rule, said in found.items()
                    )
                    design = "paired" if paired else "unpaired"
                    percent = "/".join(f"{100 * rate:.0f}" for rate in rates)
                    print(f"{design}, {cause}, {percent}, n = {n}: {shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
