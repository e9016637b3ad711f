"""Whether what is done to embeddings depends on the budget, of two studies that differ in it.

    python studies/budget.py studies/embedding-factorial studies/embedding-factorial-long
    python studies/budget.py studies/embedding-factorial studies/embedding-budget

For each treatment the mean effect of its four cells after 1,500 iterations minus that after 300,
seed by seed, with the errors of seeds, pages and both choices of rates; Holm over the treatments.
Where the second study has not all four cells, each of its effects stands alone. Registered in
`factorial.md` before the first trials after 1,500 iterations.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

from paribus import load_results
from paribus.analysis import Table, analyse
from paribus.analysis.choice import choice_of, tried_before
from paribus.analysis.contrasts import item_scores
from paribus.analysis.interactions import weights_of
from paribus.results import Results, readable
from paribus.statistics import holm, macro_contrast
from paribus.study import Interaction, Study

TREATMENTS = ("layernorm", "rmsnorm", "center", "factor", "steps")
CELLS = ("", "-warm", "-untied", "-untied-warm")
METRIC = "validation_loss"


def asked(study: Study) -> dict[str, list[str]]:
    """Return the arms whose effects are averaged, by a name: of a treatment, or each alone."""
    whole = {name: [name + cell for cell in CELLS] for name in TREATMENTS}
    if all(arm in study.arms for arms in whole.values() for arm in arms):
        return whole
    return {arm: [arm] for arm in study.arms if not arm.startswith("none")}


def effects(results: Results, seeds: tuple[int, ...], groups: dict[str, list[str]]):
    """By name: [seeds, pages] of the baselines and of the arms, each the mean over the group, and
    the SD that comes from the choice of their rates."""
    table, analysis = Table.of(results.judged), analyse(results)
    tried, found = tried_before(table), {}
    none = results.study.baseline
    for name, arms in groups.items():
        contrasts = [replace(analysis.contrast(arm), seeds=seeds) for arm in arms]
        cells = [item_scores(table, one) for one in contrasts]
        sides = [sum(cell[side][0] for cell in cells) / len(cells) for side in (0, 1)]
        # Against an arm that is compared with nothing, whose effect is none.
        weights = weights_of(analysis.study, Interaction(of=tuple(arms), than=(none,)))
        found[name] = (*sides, choice_of(table, tried, weights, METRIC).error)
    return found


def comparable(results: Results) -> set[int]:
    """Return the seeds at which every arm can be compared."""
    return set.intersection(*(set(one.seeds) for one in analyse(results).contrasts if one.primary))


def main(short: Path, long: Path) -> None:
    """Print the change of each effect with its interval and p by Holm's method."""
    with readable(short) as first, readable(long) as second:
        halves = [load_results(first), load_results(second)]
        seeds = tuple(sorted(set.intersection(*map(comparable, halves))))
        groups = asked(halves[1].study)
        before, after = (effects(half, seeds, groups) for half in halves)
        inference = halves[0].study.inference
    told = []
    for name in groups:
        (base, arm, error), (later_base, later_arm, later_error) = before[name], after[name]
        found = macro_contrast(
            [later_base + arm],
            [later_arm + base],
            seed=inference.seed,
            margin=0.02,
            family=len(groups),
            crossed=inference.crossed,
            choice=math.hypot(error, later_error),
        )
        told.append((name, found.decided))
    for (name, says), p in zip(told, holm([one.p_value for _, one in told]), strict=True):
        low, high = says.interval.low, says.interval.high
        print(f"{name:16} {says.mean:+.4f} [{low:+.4f}, {high:+.4f}]  p {p:.4f}  n {says.n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
