"""Analyses across the studies of `budgets.md`, as planned there.

    python studies/budgets.py RESULTS

reads the folders `budget-300`, `budget-1500`, `budget-6000` and `rate-tolerance` in RESULTS and
writes `budgets.json` beside this file. A study that has no verdict yet is skipped. Changes are
[mean, low, high] with 95% intervals; p-values are adjusted by Holm's method within each family.
"""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from budget import Half, change
from scipy import stats

from paribus import load_results
from paribus.analysis.schema import Contrast
from paribus.files import write_bytes
from paribus.statistics import Decided, holm

BUDGETS = (300, 1500, 6000)
OUTPUTS = {"tied": "", "untied": "-untied"}
TREATMENTS = ("layernorm", "steps")
LOSS, ACCURACY, GRADIENT = "validation_loss", "macro_accuracy", "grad_norm"
SAME = 0.005  # half a point of accuracy
# Rate tolerance: the arms' prefixes, rates, and the excess loss at which a seed counts as lost.
TOLERANT, RATES, LOST = ("layernorm", "factor"), ("22", "46", "100"), 0.1


def contrast_of(study: Half, arm: str, metric: str) -> Contrast:
    """Return an arm's registered contrast on a metric."""
    (contrast,) = (c for c in study.analysis.contrasts if (c.arm, c.metric) == (arm, metric))
    return contrast


def by_both(short: Half, long: Half, arm: str) -> Decided:
    """Return by how much an arm's effect on the loss is larger after the longer budget."""
    seeds = (set(contrast_of(study, arm, LOSS).seeds) for study in (short, long))
    return change((short, long), [arm], set.intersection(*seeds))


def with_holm(family: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add Holm-adjusted p-values to a family of results that have `p`."""
    adjusted = holm([each["p"] for each in family.values()])
    return {
        name: each | {"holm_p": float(p)}
        for (name, each), p in zip(family.items(), adjusted, strict=True)
    }


def stated(decided: Decided) -> dict[str, Any]:
    """Return a change with its interval and p-value."""
    interval = decided.interval
    return {"change": [decided.mean, interval.low, interval.high], "p": decided.p_value}


def by_budget(studies: dict[int, Half]) -> dict[str, dict[str, Any]]:
    """Return the changes of each treatment's effect between neighbouring budgets."""
    return with_holm(
        {
            f"{treatment}, {output}, {short} to {long}": stated(
                by_both(studies[short], studies[long], treatment + suffix)
            )
            for short, long in pairwise(BUDGETS)
            if short in studies and long in studies
            for treatment, (output, suffix) in product(TREATMENTS, OUTPUTS.items())
        }
    )


def accuracies(studies: dict[int, Half]) -> dict[str, dict[str, Any]]:
    """Return LayerNorm's effect on macro accuracy by cell, and whether H0 and H1a hold there."""
    cells = {}
    for (budget, study), (output, suffix) in product(studies.items(), OUTPUTS.items()):
        accuracy = contrast_of(study, f"layernorm{suffix}", ACCURACY).decided
        gradient = contrast_of(study, f"layernorm{suffix}", GRADIENT).decided
        assert accuracy and gradient
        inner = accuracy.equivalence_interval
        cells[f"{output}, {budget}"] = stated(accuracy) | {
            "H0": inner.low > -SAME and inner.high < SAME,
            "gradient_norm": stated(gradient),
        }
    cells = with_holm(cells)
    for cell in cells.values():
        lower = cell["holm_p"] < 0.05 and cell["change"][0] < 0
        cell["H1a"] = lower and cell["gradient_norm"]["change"][2] < 0
    return cells


def lost(study: Half, arm: str) -> dict[str, dict[int, bool]]:
    """Return by rate and seed whether a run diverged or ended LOST above the arm's best mean."""
    table = study.table
    finals = {
        rate: {
            seed: math.inf if table.events[name, seed].diverged else table.values[name, seed, LOSS]
            for seed in study.results.study.seeds
        }
        for rate, name in ((rate, f"{arm}-{rate}") for rate in RATES)
    }
    finite = {r: [x for x in own.values() if math.isfinite(x)] for r, own in finals.items()}
    best = min(float(np.mean(own)) for own in finite.values() if own)
    return {r: {seed: x > best + LOST for seed, x in own.items()} for r, own in finals.items()}


def sign_flip_p(differences: np.ndarray) -> float:
    """Return the exact two-sided p-value of a paired sign-flip test of the mean."""
    signs = np.array(list(product((-1, 1), repeat=len(differences))))
    return float(np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9))


def tolerance(study: Half) -> dict[str, Any]:
    """Return the seeds lost by arm and rate, and the tests of H1b."""
    counts, tests = {}, {}
    for output, suffix in OUTPUTS.items():
        by_arm = {name: lost(study, name + suffix) for name in ("none", *TOLERANT)}
        for name, by_rate in by_arm.items():
            for rate, own in by_rate.items():
                n = sum(own.values())
                interval = stats.binomtest(n, len(own)).proportion_ci(method="exact")
                counts[f"{name}, {output}, {rate}"] = [n, len(own), interval.low, interval.high]
        rates = {
            name: np.array([sum(by[r][s] for r in RATES) for s in study.results.study.seeds])
            for name, by in by_arm.items()
        }
        for name in TOLERANT:
            differences = rates[name] - rates["none"]
            p = sign_flip_p(differences)
            tests[f"{name}, {output}"] = {"change": float(differences.mean()), "p": p}
    return {"lost": counts, "tests": with_holm(tests)}


def main(home: Path) -> dict[str, Any]:
    """Return every analysis whose studies are finished."""
    folders = {n: home / f"budget-{n}" for n in BUDGETS}
    studies = {
        n: Half(load_results(folder))
        for n, folder in folders.items()
        if (folder / "verdict.json").exists()
    }
    found: dict[str, Any] = {"by_budget": by_budget(studies), "accuracy": accuracies(studies)}
    if (home / "rate-tolerance" / "verdict.json").exists():
        found["tolerance"] = tolerance(Half(load_results(home / "rate-tolerance")))
    return found


if __name__ == "__main__":
    results = main(Path(sys.argv[1]))
    text = json.dumps(results, indent=1) + "\n"
    write_bytes(Path(__file__).with_suffix(".json"), text.encode())
    print(text)
