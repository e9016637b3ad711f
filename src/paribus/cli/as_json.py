"""What verbs print with --json: plain values, with a schema number.

The number is raised when a key is renamed, dropped or given another meaning. The verbs that give
verdicts print verdict.json, whose number is that of all records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paribus.cli.options import print_json
from paribus.decision import unreachable
from paribus.digests import plain
from paribus.schema import stamped
from paribus.study.trainer import STACKED

if TYPE_CHECKING:
    from paribus.analysis import Detectable, PlannedLooks
    from paribus.engine.cost import Cost
    from paribus.engine.training.parameters import ParameterRow
    from paribus.metric import Metric
    from paribus.study import Study

SCHEMA = 1


def give(value: Mapping[str, Any]) -> None:
    """Print `value` as JSON on standard output, with the schema number."""
    print_json(stamped(plain(value), SCHEMA))


def check(
    study: Study,
    cost: Cost | None,
    tried: Mapping[str, str],
    parameters: Mapping[str, Sequence[ParameterRow]],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Return what `check` says: the arms, their sizes, every key, and what was tried."""
    entries = _named(study) | {
        "arms": _arms(study),
        "seeds": list(study.seeds),
        "cost": cost,
        "unreachable": unreachable(study),
        "trained_a_step": study.trainer == STACKED,
        "study": study.model_dump(mode="json"),
    }
    entries |= {"tried": tried} if tried else {}
    return entries | ({"parameters": parameters, "warnings": warnings} if parameters else {})


def _arms(study: Study) -> dict[str, Any]:
    return {
        arm: {
            "against": study.reference(arm),
            "differs": {key: [a, b] for key, (a, b) in study.differences(arm).items()},
        }
        for arm in study.arms
    }


def plan(
    study: Study,
    rows: Sequence[Detectable],
    cost: Cost | None,
    metrics: Mapping[str, Metric],
    looks: PlannedLooks | None,
) -> dict[str, Any]:
    """Return what `plan` says: the smallest change that is seen, by endpoint and contrast, if an SD
    is known; the cost; and the looks."""
    seen = [
        asdict(row)
        | {"unit": metrics[row.metric].change_unit, "could_miss": row.could_miss}
        | {"exceeds_margin": row.exceeds_margin}
        for row in rows
    ]
    return _named(study) | {
        "arms": _arms(study),
        "seeds": len(study.seeds),
        "power": study.inference.power,
        "alpha": study.inference.alpha,
        "family": study.family,
        "detects": seen,
        "cost": cost,
        "looks": looks,
    }


def _named(study: Study) -> dict[str, Any]:
    return {"name": study.name, "question": study.question}
