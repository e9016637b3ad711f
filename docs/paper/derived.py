"""What the paper says of several of its numbers at once, from the records: derived.json.

    python docs/paper/derived.py      # writes it beside this file

The paper names these by their keys; `paribus paper --check` finds a text that says otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from effects import METRIC, analysis_of

from paribus import load_results
from paribus.files import write_bytes
from paribus.results import readable

STUDIES = Path(__file__).parents[2] / "studies"
HALVES = {"300": "embedding-factorial", "1500": "embedding-factorial-long"}
RATE = "training.optimizer.learning_rate"
SIGNIFICANT = 0.05
OUTPUTS = ("", "-untied")  # as arms without warmup end
NORMS, LIKE_NORMS = ("layernorm", "rmsnorm"), ("layernorm", "rmsnorm", "factor")


class Half:
    """What is known of one budget."""

    def __init__(self, study: Path) -> None:
        self.study, self.told = study, analysis_of(study)
        primary = [one for one in self.told["contrasts"] if one["family"] == "primary"]
        self.contrasts = {one["arm"]: one for one in primary}
        self.tuned = self.told["tuned"]
        self.points: dict[str, list[dict[str, Any]]] = {}
        for point in self.tuned["points"]:
            self.points.setdefault(point["arm"], []).append(point)

    def rate(self, arm: str) -> float:
        """Return the rate at which an arm is judged."""
        return self.tuned["chosen"][arm][RATE]

    def rate_of(self, point: dict[str, Any]) -> float:
        """Return the rate of a point of a tuning curve."""
        return self.tuned["candidates"][point["candidate"] - 1][RATE]

    def best(self, arm: str) -> dict[str, Any]:
        """Return the best of the rates that were tried."""
        return next(one for one in self.points[arm] if one["chosen"])

    def robust(self) -> dict[str, tuple[bool, float]]:
        """Return of each significant contrast, by arm, what the difference between the best tried
        rates says: whether it lies in the interval, and its ratio to the effect."""
        found = {}
        for arm, one in self.contrasts.items():
            if one["holm_p"] <= SIGNIFICANT:
                tried = self.best(arm)["mean"] - self.best(one["reference"])["mean"]
                says, span = one["decided"], one["decided"]["interval"]
                found[arm] = span["low"] <= tried <= span["high"], tried / says["mean"]
        return found

    def read(self) -> None:
        """Read what the analysis does not keep: the share of steps whose gradient was clipped, and
        the validation loss, by arm, means over the verdict seeds."""
        with readable(self.study) as folder:
            results = load_results(folder)
            scores: dict[str, list[float]] = {}
            for row in results.scores.to_pylist():
                scores.setdefault(row["arm"], []).append(row[METRIC])
            steps, study = results.trial_steps, results.study
            norms = {arm: [steps[arm, seed]["grad_norm"] for seed in study.seeds] for arm in scores}
        self.validation = {arm: float(np.mean(of)) for arm, of in scores.items()}
        self.clipped = {
            arm: 100 * float((np.array(of) > study.setting(arm).training.grad_clip).mean())
            for arm, of in norms.items()
        }


def ends(name: str, values: list[float]) -> dict[str, float]:
    """Return the least and the largest, by name."""
    return {f"{name}, least": min(values), f"{name}, most": max(values)}


def computed() -> dict[str, Any]:
    """Return every number by its name."""
    halves = {budget: Half(STUDIES / name) for budget, name in HALVES.items()}
    long = halves["1500"]
    found: dict[str, Any] = {}

    robust = {budget: half.robust() for budget, half in halves.items()}
    both = [one for of in robust.values() for one in of.values()]
    found["significant effects"] = len(both)
    found["with the sign of the best rates"] = sum(ratio > 0 for _, ratio in both)
    found["outside at the best rates"] = sum(not inside for inside, _ in both)
    cold = [robust["300"][f"{arm}-untied"][1] for arm in LIKE_NORMS]
    found |= ends("best rates, 300, untied cold", cold)
    found |= ends("best rates, 1500", [ratio for _, ratio in robust["1500"].values()])

    for budget, half in halves.items():
        shares = []
        for one in half.contrasts.values():
            rest = one["items"]["crossed"]["standard_error"] ** 2
            of_choice = one["choice"]["error"] ** 2
            shares.append(of_choice / (of_choice + rest))
        found[f"mostly choice, {budget}"] = sum(share > 0.5 for share in shares)
        ratios = [
            half.rate(arm + output) / half.rate("none" + output)
            for output in OUTPUTS
            for arm in LIKE_NORMS
        ]
        found |= ends(f"rates without warmup, {budget}", ratios)
        # Loss that warmup saves the plain model.
        means = {
            one["arm"]: one["mean"] for one in half.told["summaries"] if one["metric"] == METRIC
        }
        saved = [means["none" + output] - means[f"none{output}-warm"] for output in OUTPUTS]
        found |= ends(f"plain without warmup, {budget}", saved)

    long.read()
    found |= {f"clipped, {arm}, 1500": share for arm, share in long.clipped.items()}
    # Tied without warmup a norm seems to be judged at a worse rate than one beside it.
    misfits = [long.validation[arm] - long.best(arm)["mean"] for arm in NORMS]
    found |= ends("misfit", misfits)
    found["best plain trial"] = min(min(p["values"].values()) for p in long.points["none-untied"])
    at = min(long.points["layernorm-untied"], key=lambda p: abs(long.rate_of(p) - 2.2e-3))
    found["worst LayerNorm trial"] = max(at["values"].values())
    found["at the rate"] = long.rate_of(at)

    sizes = analysis_of(STUDIES / "embedding-norm-sizes")["contrasts"]
    of = [one["decided"]["mean"] for one in sizes if one["metric"] == METRIC]
    return found | ends("five sizes", of)


if __name__ == "__main__":
    told = computed()
    write_bytes(Path(__file__).with_suffix(".json"), f"{json.dumps(told, indent=1)}\n".encode())
    for name, value in told.items():
        print(f"{name:60} {value}")
