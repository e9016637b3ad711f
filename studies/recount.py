"""The numbers of the factorial, computed a second time from its records, without paribus.

    paribus unpack studies/embedding-factorial SHORT
    paribus unpack studies/embedding-factorial-long LONG
    python studies/recount.py SHORT LONG       # exits with 1 where what is kept says otherwise

Each folder alone is compared with its analysis.json, and both together with budget.json. Of every
effect, interaction and change by budget: the mean over seeds of the difference in nats/token over
the sealed pages, and its standard error from seeds, pages and the choice of the learning rates. The
last is drawn anew with another generator, so that errors agree to some per cent only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

DRAWS = 200_000
RATE = "training.optimizer.learning_rate"
# Of means in nats/token; of intervals, relatively: paribus has 10,000 draws of what can have a long
# tail, whose SD then moves by 4% with their seed.
CLOSE, ALIKE = 1e-9, 0.1


def pages(trial: Path) -> np.ndarray:
    """[I] a score for each page, whose mean is the loss of all (Cochran 1977, section 6.4)."""
    table = pq.read_table(trial / "blocks.parquet")
    nats, n = (table[name].to_numpy().astype(float) for name in ("loss_sum_nats", "predicted"))
    ratio = nats.sum() / n.sum()
    return ratio + (nats - ratio * n) / n.mean()


def tuning(results: Path, arms: list[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By arm: log rates [K], ascending, and the tuning losses [K, T]; NaN where one diverged."""
    plan = json.loads((results / "tuning.json").read_text())
    rates = [one[RATE] for one in plan["candidates"]]
    seeds = plan["seeds"]
    found = {arm: np.full((len(rates), len(seeds)), np.nan) for arm in arms}
    for one in plan["trials"]:
        value = np.nan if one["value"] is None else one["value"]
        found[one["arm"]][one["candidate"] - 1, seeds.index(one["seed"])] = value
    order = np.argsort(rates)
    return {arm: (np.log(np.array(rates)[order]), of[order]) for arm, of in found.items()}


def three(x: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best rate of those that diverged least, between its neighbours."""
    lost, means = np.isnan(losses).sum(1), np.nanmean(losses, 1)
    at = int(np.lexsort((means, lost))[0])
    at = min(max(at, 1), len(x) - 2)
    return x[at - 1 : at + 2], losses[at - 1 : at + 2]


def residual_variance(losses: np.ndarray) -> float:
    """After the effects of rates and of seeds."""
    rest = losses - losses.mean(0) - losses.mean(1, keepdims=True) + losses.mean()
    return float((rest**2).sum() / ((losses.shape[0] - 1) * (losses.shape[1] - 1)))


def choice_error(fits: list[tuple[float, np.ndarray, np.ndarray]]) -> float:
    """SD of the weighted sum over arms of what each loses at the vertex of a redrawn parabola."""
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
    """Of the mean of [S, I] differences: seeds, and pages beyond seeds x pages, and the choice."""
    n_seeds, n_pages = delta.shape
    rest = delta - delta.mean(0) - delta.mean(1, keepdims=True) + delta.mean()
    both = (rest**2).sum() / ((n_seeds - 1) * (n_pages - 1))
    of_pages = max(delta.mean(0).var(ddof=1) - both / n_seeds, 0.0)
    of_seeds = delta.mean(1).var(ddof=1)
    return float(np.sqrt(of_seeds / n_seeds + of_pages / n_pages + choice**2))


class Half:
    """One budget: what was asked, and what it is computed from."""

    def __init__(self, results: Path) -> None:
        study = json.loads((results / "study.json").read_text())
        self.analysis = json.loads((results / "analysis.json").read_text())
        self.tuned = tuning(results, list(study["arms"]))
        self.seeds = study["seeds"]
        known = {
            one["arm"]: one for one in self.analysis["contrasts"] if one["family"] == "primary"
        }
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
        """Return the weight of every arm in the mean effect of some minus that of others."""
        weights: dict[str, float] = {}
        for side, sign in ((of, 1.0), (than, -1.0)):
            for arm in side:
                for each, by in ((arm, sign), (self.references[arm], -sign)):
                    weights[each] = weights.get(each, 0.0) + by / len(side)
        return {arm: weight for arm, weight in weights.items() if abs(weight) > 1e-12}

    def delta(self, weights: dict[str, float], seeds: list[int]) -> np.ndarray:
        """[S, I] the weighted sum of scores."""
        return sum(w * np.stack([self.scores[arm][s] for s in seeds]) for arm, w in weights.items())

    def choice(self, weights: dict[str, float]) -> float:
        """Return the SD of it that is of choosing rates."""
        return choice_error([(w, *three(*self.tuned[arm])) for arm, w in weights.items()])


def agrees(name: str, delta: np.ndarray, choice: float, says: dict[str, float]) -> bool:
    """Print a number twice, and return whether it is the same."""
    mean, error = float(delta.mean()), standard_error(delta, choice)
    half, theirs = stats.t.ppf(0.975, len(delta) - 1) * error, (says["high"] - says["low"]) / 2
    agree = abs(mean - says["mean"]) < CLOSE and abs(half / theirs - 1) < ALIKE
    print(
        f"{name:28} {mean:+.4f} +-{half:.4f}  there {says['mean']:+.4f} +-{theirs:.4f}"
        f"{'' if agree else '  DIFFERS'}"
    )
    return agree


def main(*folders: Path) -> int:
    """Print every number twice, and return 1 where some do not agree."""
    halves, found = [Half(folder) for folder in folders], []
    for half in halves:
        for name, weights in half.asked.items():
            seeds, says = half.known[name]["seeds"], half.known[name]["decided"]
            if says is None:
                print(f"{name:28} {half.known[name]['why_not']}")
                continue
            says = says["interval"] | {"mean": says["mean"]}
            found.append(agrees(name, half.delta(weights, seeds), half.choice(weights), says))
    if len(halves) > 1:
        short, long = halves
        for one in json.loads((Path(__file__).parent / "budget.json").read_text()):
            weights = short.effect([one["of"] + cell for cell in one["cells"]], [])
            delta = long.delta(weights, long.seeds) - short.delta(weights, short.seeds)
            choice = float(np.hypot(short.choice(weights), long.choice(weights)))
            found.append(agrees(" ".join([one["of"], *one["cells"]]), delta, choice, one))
    print(f"{sum(found)} of {len(found)} agree")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
