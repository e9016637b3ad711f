"""Interim analyses (looks): scheduling, stopping decisions, and boundaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paribus.analysis.contrasts import contrasts_of
from paribus.analysis.schema import Contrast, Stabilities
from paribus.analysis.side_effects import stabilities_of
from paribus.analysis.table import Table, plan_of
from paribus.analysis.tuning import tuned_before
from paribus.comparison import agree
from paribus.digests import plain
from paribus.results import looks_left, needed_trials
from paribus.results.look_record import GOES_ON, OPEN
from paribus.statistics import Boundary, minimum_detectable_effect
from paribus.study import Study

RESOLVED = ("effect", "equivalence")  # what a look says for good of an endpoint
BROKEN = "broken"  # the decision on a contrast whose controls do not hold

Entry = dict[str, Any]


def next_look(table: Table) -> Entry | None:
    """Run the next interim analysis, and return its record, or None if none is due."""
    results, study, looks = table.results, table.results.study, table.looks
    needed = needed_trials(study, looks) if looks_left(study, looks) else []
    if study.plan is None or not needed or any(trial not in results.trials for trial in needed):
        return None
    before = looks[-1]["contrasts"] if looks else {}
    opened = {arm: before.get(arm, {"decision": GOES_ON}) for arm, _ in study.contrasts}
    # Those that stopped before stay what they were; all others are seen at this look.
    controls = tuple(results.controls_among(needed))
    table = replace(table, controls=controls, looks=(*looks, {"contrasts": opened}))
    contrasts, _ = contrasts_of(table, study.judged, tuned_before(table))
    events = {rates.arm: rates for rates in stabilities_of(table)}
    return {
        "look": len(looks) + 1,
        "seeds": study.plan.looks[len(looks)],
        "contrasts": {
            arm: _seen(table, [c for c in contrasts if c.arm == arm], events[arm])
            if entry["decision"] == GOES_ON
            else entry
            for arm, entry in opened.items()
        },
    }


def _seen(table: Table, contrasts: list[Contrast], events: Stabilities) -> Entry:
    """Return the record of a contrast at the current interim analysis, including the decision.

    The contrast stops once all primary endpoints are resolved, unless more seeds could show a
    difference in divergence or spikes.
    """
    alpha, plan = table.results.study.inference.alpha, table.results.study.plan
    look = len(table.looks)
    assert plan is not None
    endpoints: dict[str, Entry] = {}
    resolved = []
    for c in contrasts:
        earlier = table.sampling(c.arm, c.metric)
        if earlier.decision in RESOLVED:
            resolved.append(earlier.decision)
            continue
        # What is said for good of an endpoint; None where it is open.
        shown = "equivalence" if c.equivalent(alpha) else None
        shown = shown or ("effect" if c.significant(alpha) else None)
        resolved += [shown] if shown else []
        endpoints[c.metric] = {"pairs": len(c.seeds), "resolved": shown}
        if (says := c.decided) is None:
            endpoints[c.metric]["why_not"] = c.why_not
            continue
        interval = plain(says.interval)
        endpoints[c.metric] |= {
            "mean": says.mean,
            "interval": [interval["low"], interval["high"]],
            "p": says.p_value,
            "holm_p": c.holm_p,
            "equivalence_holm_p": c.equivalence_holm_p,
        }
    is_last = look == len(plan.looks)
    # An arm that diverged in every seed is not shown to be harmful by few seeds; more can show it.
    rates = events.any_event
    has_events = rates.baseline_events + rates.treatment_events > 0
    are_events_open = has_events and (events.holm_p is None or events.holm_p > alpha)
    if table.broken(contrasts[0].arm):
        decision = BROKEN
    elif len(resolved) == len(contrasts) and (is_last or not are_events_open):
        decision = "effect" if "effect" in resolved else "equivalence"
    else:
        decision = OPEN if is_last else GOES_ON
    return {"look": look, "endpoints": endpoints, "decision": decision}


def look_text(study: Study, entry: Entry) -> str:
    """Format a look as text: `look 2 of 4, at 8 seeds: layernorm effect; rmsnorm continue`."""
    assert study.plan is not None
    texts = [
        f"{arm} {contrast['decision']}"
        for arm, contrast in entry["contrasts"].items()
        if contrast.get("look") == entry["look"]
    ]
    look = f"look {entry['look']} of {len(study.plan.looks)}, at {entry['seeds']} seeds"
    return f"{look}: {'; '.join(texts)}"


def why_not_these_looks(table: Table) -> str:
    """Return why `looks.json` does not match the trials, or "" if it does."""
    for number, entry in enumerate(table.looks):
        fresh = next_look(replace(table, looks=table.looks[:number]))
        name = f"look {entry['look']} in looks.json"
        if fresh is None:
            return f"{name} cannot be reproduced from these trials"
        stated = {key: value for key, value in entry.items() if key != "taken_at"}
        if not agree(stated, fresh):
            return f"{name} differs from the result recomputed from the trials"
    return ""


def planned_looks(study: Study) -> tuple[Boundary, ...]:
    """Return the boundaries of all planned interim analyses at level alpha / family size."""
    looks = plan_of(study)
    return looks.boundaries(study.inference.alpha / study.family) if looks else ()


def least_effect(study: Study, alpha: float) -> float:
    """Return the minimum detectable effect of a contrast at level `alpha`, in SDs.

    The SD is that of paired differences, or of one run if runs are unpaired.
    """
    looks = plan_of(study)
    if looks is not None:  # of the last one, to whose power earlier looks can only add
        alpha = 2 * looks.bound(len(looks.pairs) - 1, alpha / 2)
    power, samples = study.inference.power, 1 if study.is_paired else 2
    return minimum_detectable_effect(len(study.seeds), power=power, alpha=alpha, samples=samples)
