"""Interaction between embedding treatments and training budget, from two studies.

    python studies/budget.py studies/embedding-factorial studies/embedding-factorial-long

writes budget.json to the folder of this script. For each treatment, the effect is averaged over
four cells, and the value after 300 iterations is subtracted from that after 1,500, paired by seed.
Standard errors include seeds, pages and both selections of learning rates; p-values are adjusted by
Holm's method over the five treatments. This analysis was registered in `factorial.md` before the
first trial. Not registered, with unadjusted p-values: the mean over three cells (without the cell
"tied, no warmup"), and single cells. Changes are stored as [mean, low, high].
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from paribus import load_results, numbers
from paribus.analysis import Table, analyse
from paribus.analysis.contrasts import weights_of
from paribus.analysis.items import Items
from paribus.analysis.tuning import choice_of, tuned_before
from paribus.files import write_bytes
from paribus.results import Results
from paribus.statistics import Decided, holm, macro_contrast
from paribus.study import Interaction

TREATMENTS = ("layernorm", "rmsnorm", "center", "factor", "steps")
CELLS = {
    "": "tied, no warmup",
    "-warm": "tied, warmup",
    "-untied": "untied, no warmup",
    "-untied-warm": "untied, warmup",
}
METRIC = "validation_loss"


class Half:
    """Effects in one of the two studies, which differ in their budgets."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.table, self.analysis = Table.from_results(results.judged), analyse(results)
        self.tuned = tuned_before(self.table)
        primary = [one for one in self.analysis.contrasts if one.primary]
        self.seeds = set.intersection(*(set(one.seeds) for one in primary))

    def effect(self, arms: list[str], seeds: tuple[int, ...]):
        """Return mean scores [seeds, pages] of references and arms, and the error from tuning."""
        study, metric = self.analysis.study, self.analysis.metrics[METRIC]
        pairs = [(study.reference(arm), arm) for arm in arms]
        scores = [Items(self.table, metric, pair, seeds).scores() for pair in pairs]
        by_side = zip(*([own[a][0] for a in own] for own in scores), strict=True)
        base, arm = (sum(cells) / len(arms) for cells in by_side)
        # Against an arm that is compared with nothing, whose effect is none.
        by_none = Interaction(of=tuple(arms), than=(self.results.study.baseline,))
        weights = {a: w for a, w in weights_of(study, by_none).items() if w}
        return base, arm, choice_of(self.table, self.tuned, weights, METRIC).error


def change(halves: tuple[Half, Half], arms: list[str], seeds: set[int]) -> Decided:
    """Return the change in the mean effect of `arms` from the smaller to the larger budget."""
    (base, arm, error), (later_base, later_arm, later) = (
        half.effect(arms, tuple(sorted(seeds))) for half in halves
    )
    inference = halves[0].results.study.inference
    return macro_contrast(
        [later_base + arm],
        [later_arm + base],
        seed=inference.seed,
        crossed=inference.crossed,
        choice=math.hypot(error, later),
    )


# Which cells each change is the mean of; the first was registered.
GROUPS = {
    "all cells": tuple(CELLS),
    "three cells": tuple(CELLS)[1:],
    **{name: (cell,) for cell, name in CELLS.items()},
}
REGISTERED = "all cells"


def changes(short: Path, long: Path) -> dict[str, list[float] | float]:
    """Return the changes and p-values, keyed by treatment and group of cells."""
    halves = Half(load_results(short)), Half(load_results(long))
    seeds = halves[0].seeds & halves[1].seeds
    found: dict[str, list[float] | float] = {}
    for group, cells in GROUPS.items():
        of = [change(halves, [name + cell for cell in cells], seeds) for name in TREATMENTS]
        p = [one.p_value for one in of]
        if group == REGISTERED:
            p = [float(one) for one in holm(p)]
        for name, one, its in zip(TREATMENTS, of, p, strict=True):
            found[f"{name}, {group}"] = [one.mean, one.interval.low, one.interval.high]
            found[f"{name}, {group}: p"] = its
    return found


if __name__ == "__main__":
    found = changes(Path(sys.argv[1]), Path(sys.argv[2]))
    write_bytes(Path(__file__).with_suffix(".json"), f"{json.dumps(found, indent=1)}\n".encode())
    for name, one in found.items():
        told = numbers.delta(*one, 4) if isinstance(one, list) else f"{one:.4f}"
        print(f"{name:30} {told}")
