"""What verbs print with --json: plain values, each form with a number of its own.

A number is raised when a key is renamed, dropped or given another meaning; a new key leaves it. The
verbs that give verdicts print verdict.json, whose number is that of all records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paribus.cli import printed
from paribus.cli.options import print_json
from paribus.decision import unreachable
from paribus.digests import plain
from paribus.migrations import stamped

if TYPE_CHECKING:
    from paribus.analysis import Detectable, PlannedLooks
    from paribus.engine.execution.timing.estimate import Estimate
    from paribus.engine.machine.on_paper import OnPaper
    from paribus.study import Study
    from paribus.trainers.cost import TrialCost

SCHEMAS = {
    "studies": 1,
    "show": 1,
    "parameters": 1,
    "plan": 1,
    "check": 1,
    "status": 1,
    "evaluate": 1,
    "null": 1,
    "compare": 1,
    "bench": 1,
    "verify": 1,
}


def give(form: str, value: Mapping[str, Any]) -> None:
    """Print `value` as JSON on standard output, under the number of its form."""
    print_json(stamped(plain(value), SCHEMAS[form]))


def studies(
    groups: Mapping[str, list[str]],
    found: Mapping[str, Study],
) -> dict[str, Any]:
    """Return what `studies` says of each example."""
    listed = {
        name: {
            "group": group,
            "question": found[name].question,
            "arms": found[name].arms.keys(),
            "seeds": found[name].seeds,
            "minutes_on_two_cores": printed.minutes(found[name]),
            "network": found[name].format.downloads(found[name]),
        }
        for group, names in groups.items()
        for name in names
    }
    return {"studies": listed}


def show(study: Study, cost: Estimate | TrialCost) -> dict[str, Any]:
    """Return what `show` says: every arm and what sets it apart, the cost, what the study names and
    cannot occur, every key."""
    arms = {
        arm: {
            "against": study.reference(arm),
            "differs": {key: [a, b] for key, (a, b) in study.differences(arm).items()},
        }
        for arm in study.arms
    }
    return _named(study) | {
        "arms": arms,
        "cost": _cost(cost),
        "unreachable": unreachable(study),
        "study": study.model_dump(mode="json", exclude={"claims"}),
    }


def plan(
    study: Study, rows: Sequence[Detectable], cost: Estimate | TrialCost, looks: PlannedLooks | None
) -> dict[str, Any]:
    """Return what `plan` says: the smallest change that is seen, by endpoint and contrast, where an
    SD is known; the cost; and the looks."""
    seen = [
        asdict(row)
        | {"unit": cost.metrics[row.metric].change_unit, "could_miss": row.could_miss}
        | {"exceeds_margin": row.exceeds_margin}
        for row in rows
    ]
    return _planned(study, seen) | {"cost": _cost(cost), "looks": looks}


def on_paper(study: Study, rows: Sequence[Detectable], paper: OnPaper) -> dict[str, Any]:
    """Return what `plan` says of devices that are not here."""
    seen = [asdict(row) | {"could_miss": row.could_miss} for row in rows]
    return _planned(study, seen) | {"on_paper": paper.record}


def _planned(study: Study, seen: list[dict[str, Any]]) -> dict[str, Any]:
    return _named(study) | {
        "seeds": len(study.seeds),
        "power": study.inference.power,
        "alpha": study.inference.alpha,
        "family": study.family,
        "detects": seen,
    }


def _named(study: Study) -> dict[str, Any]:
    return {"name": study.name, "question": study.question}


def _cost(cost: Estimate | TrialCost) -> dict[str, Any]:
    return {key: value for key, value in asdict(cost).items() if key != "metrics"}
