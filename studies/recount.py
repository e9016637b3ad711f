"""Independent recomputation of the embedding factorial's results, without paribus.

    paribus report studies/embedding-factorial             # writes analysis.json
    cp -r studies/embedding-factorial SHORT
    tar -xf SHORT/records.tar.xz -C SHORT                  # LONG likewise
    python studies/recount.py SHORT LONG                   # exits with 1 if a number differs

For each effect, interaction and change between budgets in analysis.json and budget.json, the script
recomputes the mean difference in nats/token over the test pages, its standard error (from seeds,
pages and the selected learning rates) and the Holm-adjusted p-value. The error of the selected
rates is resampled with a different generator, so standard errors agree only to a few per cent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

DRAWS = 200_000
RATE = "training.optimizer.learning_rate"
# As budget.json groups the cells.
CELLS = {
    "tied, no warmup": "",
    "tied, warmup": "-warm",
    "untied, no warmup": "-untied",
    "untied, warmup": "-untied-warm",
}
GROUPS = {name: [cell] for name, cell in CELLS.items()} | {
    "all cells": list(CELLS.values()),
    "three cells": list(CELLS.values())[1:],
}
# Of means in nats/token; of intervals, relatively: paribus has 10,000 draws of what can have a long
# tail, whose SD then moves by 4% with their seed. Of p, in quantiles of the normal distribution.
CLOSE, ALIKE = 1e-9, 0.1


def pages(trial: Path) -> np.ndarray:
    """Return linearised scores of pages [I] with the total loss as mean (Cochran 1977, 6.4)."""
    table = pq.read_table(trial / "blocks.parquet")
    nats, n = (table[name].to_numpy().astype(float) for name in ("loss_sum_nats", "predicted"))
    ratio = nats.sum() / n.sum()
    return ratio + (nats - ratio * n) / n.mean()


def tuning(results: Path, arms: list[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return {arm: (ascending rates [K], tuning losses [K, T])}; diverged trials are NaN."""
    plan = json.loads((results / "tuning.json").read_text())
    rates = [one[RATE] for one in plan["candidates"]]
    seeds = plan["seeds"]
    found = {arm: np.full((len(rates), len(seeds)), np.nan) for arm in arms}
    for one in plan["trials"]:
        value = np.nan if one["value"] is None else one["value"]
        found[one["arm"]][one["candidate"] - 1, seeds.index(one["seed"])] = value
    order = np.argsort(rates)
    return {arm: (np.array(rates)[order], of[order]) for arm, of in found.items()}


def best(losses: np.ndarray) -> int:
    """Return the index of the rate with the fewest diverged trials, then the lowest mean loss."""
    lost, means = np.isnan(losses).sum(1), np.nanmean(losses, 1)
    return int(np.lexsort((means, lost))[0])


def three(rates: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms and losses of the best rate and its two neighbours."""
    at = min(max(best(losses), 1), len(rates) - 2)
    return np.log(rates[at - 1 : at + 2]), losses[at - 1 : at + 2]


def residual_variance(losses: np.ndarray) -> float:
    """Return the residual variance after additive rate and seed effects."""
    rest = losses - losses.mean(0) - losses.mean(1, keepdims=True) + losses.mean()
    return float((rest**2).sum() / ((losses.shape[0] - 1) * (losses.shape[1] - 1)))


def choice_error(fits: list[tuple[float, np.ndarray, np.ndarray]]) -> float:
    """Return the SD of the weighted sum of excess losses at vertices of resampled parabolas."""
    rng = np.random.default_rng(7)
    sd = np.sqrt(np.mean([residual_variance(losses) for _, _, losses in fits]))
    total = np.zeros(DRAWS)
    for weight, x, losses in fits:
        place, means = x - x[1], losses.mean(1)
        true = np.polyfit(place, means, 2)
        drawn = means + rng.normal(0, sd / np.sqrt(losses.shape[1]), (DRAWS, 3))
        a, b, _ = np.linalg.solve(np.vander(place, 3), drawn.T)
        ends = np.where(b > 0, place[0], place[2])  # downhill, where there is no least value
        vertex = np.where(a > 0, np.clip(-b / np.where(a > 0, 2 * a, 1), place[0], place[2]), ends)
        total += weight * (max(true[0], 0.0) * vertex**2 + true[1] * vertex)
    return float(total.std(ddof=1))


def standard_error(delta: np.ndarray, choice: float) -> float:
    """Return the standard error of the mean of `delta` [S, I] for seeds, pages and tuning."""
    n_seeds, n_pages = delta.shape
    rest = delta - delta.mean(0) - delta.mean(1, keepdims=True) + delta.mean()
    both = (rest**2).sum() / ((n_seeds - 1) * (n_pages - 1))
    of_pages = max(delta.mean(0).var(ddof=1) - both / n_seeds, 0.0)
    of_seeds = delta.mean(1).var(ddof=1)
    return float(np.sqrt(of_seeds / n_seeds + of_pages / n_pages + choice**2))


class Half:
    """One half of the study (one budget): registered contrasts, scores and tuning losses."""

    def __init__(self, results: Path) -> None:
        study = json.loads((results / "study.json").read_text())
        self.analysis = json.loads((results / "analysis.json").read_text())
        self.tuned = tuning(results, list(study["arms"]))
        self.seeds = study["seeds"]
        known = {one["arm"]: one for one in self.analysis["contrasts"] if one["primary"]}
        self.references = {name: one["reference"] for name, one in known.items()}
        self.asked = {name: self.effect([name], []) for name in known}
        for name, one in study["interactions"].items():
            self.asked[name] = self.effect(one["of"], one["than"])
        self.known = known | {one["name"]: one for one in self.analysis["interactions"]}
        self.scores = {
            arm: {seed: pages(results / "test" / arm / f"seed-{seed}") for seed in self.seeds}
            for arm in study["arms"]
        }

    def effect(self, of: list[str], than: list[str]) -> dict[str, float]:
        """Return the arms' weights in the mean effect of `of` minus the mean effect of `than`."""
        weights: dict[str, float] = {}
        for side, sign in ((of, 1.0), (than, -1.0)):
            for arm in side:
                for each, by in ((arm, sign), (self.references[arm], -sign)):
                    weights[each] = weights.get(each, 0.0) + by / len(side)
        return {arm: weight for arm, weight in weights.items() if abs(weight) > 1e-12}

    def delta(self, weights: dict[str, float], seeds: list[int]) -> np.ndarray:
        """Return the weighted sum of the arms' scores, [S, I]."""
        return sum(w * np.stack([self.scores[arm][s] for s in seeds]) for arm, w in weights.items())

    def choice(self, weights: dict[str, float]) -> float:
        """Return the standard error due to the selection of learning rates."""
        return choice_error([(w, *three(*self.tuned[arm])) for arm, w in weights.items()])


def agrees(name: str, delta: np.ndarray, choice: float, says: dict[str, float]) -> bool:
    """Print an estimate next to the recorded one, and return whether they agree."""
    mean, error = float(delta.mean()), standard_error(delta, choice)
    half, theirs = stats.t.ppf(0.975, len(delta) - 1) * error, (says["high"] - says["low"]) / 2
    agree = abs(mean - says["mean"]) < CLOSE and abs(half / theirs - 1) < ALIKE
    print(
        f"{name:28} {mean:+.4f} +-{half:.4f}  recorded {says['mean']:+.4f} +-{theirs:.4f}"
        f"{'' if agree else '  DIFFERS'}"
    )
    return agree


def p_of(delta: np.ndarray, choice: float) -> float:
    """Return the two-sided p-value of a t-test with n_seeds - 1 degrees of freedom."""
    t = abs(delta.mean()) / standard_error(delta, choice)
    return float(2 * stats.t.sf(t, len(delta) - 1))


def family_agrees(ours: dict[str, float], theirs: dict[str, float]) -> Iterator[bool]:
    """Yield whether each Holm-adjusted p-value agrees, printing those that differ."""
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(sorted(ours, key=lambda name: ours[name])):
        largest = max(largest, min(1.0, (len(ours) - rank) * ours[name]))
        adjusted[name] = largest
    for name, p in adjusted.items():
        here, there = stats.norm.isf(p / 2), stats.norm.isf(theirs[name] / 2)
        agree = abs(here - there) <= ALIKE * max(here, there) + CLOSE
        if not agree:
            print(f"{name:28} p {p:.4f}  recorded {theirs[name]:.4f}  DIFFERS")
        yield agree


def main(*folders: Path) -> int:
    """Compare all results; return exit code 0 if they agree, else 1."""
    halves, found = [Half(folder) for folder in folders], []
    for half in halves:
        ours: dict[str, float] = {}
        for name, weights in half.asked.items():
            known = half.known[name]
            if known["decided"] is None:
                print(f"{name:28} {known['why_not']}")
                continue
            delta, choice = half.delta(weights, known["seeds"]), half.choice(weights)
            says = known["decided"]["interval"] | {"mean": known["decided"]["mean"]}
            found.append(agrees(name, delta, choice, says))
            ours[name] = p_of(delta, choice)
        for family in (half.references.keys(), ours.keys() - half.references.keys()):
            p = {name: ours[name] for name in family}
            found += family_agrees(p, {name: half.known[name]["holm_p"] for name in family})
    if len(halves) > 1:
        short, long = halves
        changes = json.loads((Path(__file__).parent / "budget.json").read_text())
        ours = {}
        for name in [name for name in changes if not name.endswith(": p")]:
            treatment, _, group = name.partition(", ")
            weights = short.effect([treatment + cell for cell in GROUPS[group]], [])
            delta = long.delta(weights, long.seeds) - short.delta(weights, short.seeds)
            choice = float(np.hypot(short.choice(weights), long.choice(weights)))
            mean, low, high = changes[name]
            found.append(agrees(name, delta, choice, {"mean": mean, "low": low, "high": high}))
            if group == "all cells":
                ours[name] = p_of(delta, choice)
        found += family_agrees(ours, {name: changes[f"{name}: p"] for name in ours})
    print(f"{sum(found)} of {len(found)} agree")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
