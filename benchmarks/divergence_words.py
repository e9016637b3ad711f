"""Not a speed: how often the word on an arm is wrong when runs diverge, and what gains it finds.

    python benchmarks/divergence_words.py [TABLES]

Two arms with one law of loss, 5, 10 or 20 runs each, paired or not. Runs diverge at a rate for each
arm: by chance, at the highest losses of the arm (`hard runs`, so that survivors look better than
the arm is), or at the hardest seeds of both arms (`hard seeds`). Pairs share half of their variance
(or SHARED). An SD is that of a run; in pairs, that of a difference.

Printed of each cell, in per cent: how often the word is BETTER and WORSE, by four rules for runs
that diverged at rates that do not differ significantly. `survivors`: they do not count. `worst`:
the word also holds with them at the worst finite score (what paribus does). `untrained`: the same
at the score of an untrained model, 100 SD away. `ranks`: the same, by the t-test on ranks.
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
    """The runs of both arms: losses [n], and which diverged [n]."""

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
    """Draw the runs of both arms; the arm's losses are lower by `gain` SD."""
    seeds = rng.standard_normal((2, n))
    if paired:
        seeds[1] = seeds[0]
    losses = math.sqrt(SHARED) * seeds + math.sqrt(1 - SHARED) * rng.standard_normal((2, n))
    hardness = {"chance": rng.standard_normal((2, n)), "hard runs": losses, "hard seeds": seeds}
    diverged = hardness[cause] > stats.norm.ppf(1 - np.array(rates))[:, None]
    losses[1] -= gain * (math.sqrt(2 * (1 - SHARED)) if paired else 1.0)
    return Arms(*losses, *diverged)


def events(arms: Arms, *, paired: bool) -> tuple[float, int, int]:
    """Return p of the exact test of divergence, and the counts of the baseline and the arm."""
    theirs, ours = arms.baseline_diverged, arms.treatment_diverged
    counts = int(theirs.sum()), int(ours.sum())
    if paired:
        return mcnemar(int((theirs & ~ours).sum()), int((ours & ~theirs).sum())), *counts
    return fisher_exact(*counts, len(theirs), len(ours)), *counts


def quality(baseline: np.ndarray, treatment: np.ndarray, *, paired: bool) -> Quality:
    """Return what the test of means shows; losses are better lower."""
    if min(len(baseline), len(treatment)) < DESCRIPTIVE_BELOW:
        return "Q?"
    test = paired_t(treatment - baseline) if paired else welch(baseline, treatment)
    if test.p_value() > ALPHA:
        return "Q?"
    return "Q-" if test.mean > 0 else "Q+"


def survivors(arms: Arms, *, paired: bool) -> Quality:
    """Return the same over the runs that survived; of pairs, over those of which both did."""
    kept = ~arms.baseline_diverged, ~arms.treatment_diverged
    if paired:
        kept = (kept[0] & kept[1],) * 2
    return quality(arms.baseline[kept[0]], arms.treatment[kept[1]], paired=paired)


def counted(arms: Arms, rule: str, *, paired: bool) -> Quality:
    """Return the same with diverged runs counted by `rule`."""
    gone = np.stack([arms.baseline_diverged, arms.treatment_diverged])
    losses = np.stack([arms.baseline, arms.treatment])
    losses[gone] = UNTRAINED if rule == "untrained" else losses[~gone].max()
    if rule == "ranks":
        losses[gone] += 1  # below all others
        losses = stats.rankdata(losses).reshape(losses.shape)
    return quality(*losses, paired=paired)


def words(arms: Arms, *, paired: bool) -> dict[str, str]:
    """Return the word on the arm by each of RULES."""
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
    """Return how often each word is said, by rule."""
    rng = np.random.default_rng([SEED, n, paired, *(int(100 * rate) for rate in rates)])
    found: dict[str, Counter[str]] = {rule: Counter() for rule in RULES}
    for _ in range(tables):
        arms = draw(rng, n, rates, cause, paired=paired, gain=gain)
        for rule, word in words(arms, paired=paired).items():
            found[rule][word] += 1
    return found


def cells() -> Iterator[tuple[bool, Cause]]:
    """Yield pairing and cause of divergence; hard seeds are those that pairs share."""
    causes: dict[bool, tuple[Cause, ...]] = {
        False: ("chance", "hard runs"),
        True: ("chance", "hard runs", "hard seeds"),
    }
    for paired, every in causes.items():
        for cause in every:
            yield paired, cause


def main(tables: int) -> None:
    """Print both tables."""
    for gain, every in ((0.0, RATES), (GAIN, ((0.05, 0.05), (0.2, 0.2)))):
        print(f"gain {gain:g} SD, {tables:,} tables a cell: BETTER / WORSE, per cent")
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
