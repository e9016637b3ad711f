"""Where an analysis and the second computation of its headline numbers do not agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import headline

CLOSE = {"rel_tol": 1e-6, "abs_tol": 1e-9}


def disagreements(results: Path, analysis: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each headline number of analysis.json that comes out otherwise."""
    references, records = headline.arms_of(results), headline.Records(results)
    for one in analysis["contrasts"]:
        arm, reference, metric = one["arm"], one["reference"], one["metric"]
        if references[arm] != reference:
            yield f"{arm} is compared with {reference}"
        if metric in ("validation_loss", "macro_accuracy") and (one["by_run"] or {}).get("pairs"):
            yield from _contrast(records, one)
    for one in analysis["stabilities"]:
        both, before, after, neither = records.event_counts(one["arm"], one["reference"])
        told = one["any_event"]
        counts = {
            "both": both,
            "baseline_events": both + before,
            "treatment_events": both + after,
            "n_baseline": both + before + after + neither,
        }
        if any(told[name] != count for name, count in counts.items()):
            yield f"events of {one['arm']}: {told}"
        if not math.isclose(told["p_value"], headline.mcnemar(before, after), **CLOSE):
            yield f"McNemar's p of {one['arm']}: {told['p_value']}"


def _contrast(records: headline.Records, one: dict[str, Any]) -> Iterator[str]:
    values = records.losses if one["metric"] == "validation_loss" else records.accuracies
    theirs, ours = values(one["reference"]), values(one["arm"])
    kept = set(one["seeds"])
    compared = ({seed: of for seed, of in arm.items() if seed in kept} for arm in (theirs, ours))
    choice = one.get("choice")
    now = headline.contrast(*compared, choice["error"] if choice and choice["included"] else 0.0)
    then = one["by_run"]
    told = {"n": then["n"], "mean": then["mean"], "sd": then["sd"]}
    one_sample = one["sampling"]["look"] is None and one["sampling"]["stage_seeds"] is None
    if then["decided"]["test"] == "paired_t" and one_sample:
        told["p"] = then["decided"]["p_value"]
        told |= {side: then["decided"]["interval"][side] for side in ("low", "high")}
    for name, value in told.items():
        if not math.isclose(value, now[name], **CLOSE):
            where = f"{one['metric']} of {one['arm']} against {one['reference']}"
            yield f"{where}: {name} is {value}, and the records give {now[name]}"
