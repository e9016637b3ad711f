"""The rules that ship, made of rows that they share; and the rule that a study names.

Quality of a contrast, on the endpoint that is judged, and all else that a row may read: `State`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

from paribus.analysis import Analysis
from paribus.decision.hypotheses import require_hypotheses
from paribus.decision.rule import KEYS, Row, Rule, rule_from_record
from paribus.errors import ParibusError, nearest
from paribus.study import Decision, Study
from paribus.study.importing import load_own

# The shared rows, in the order in which `superiority` tries them.
HARM = Row(
    "2",
    "REJECT",
    "the arm is shown to cause instability",
    holds={"fix": "harm", "quality": ["Q0", "Q-", "Q?"], "divergence": ["more", "equal"]},
)
HARM_AT_A_GAIN = Row(
    "2a",
    "INCONCLUSIVE",
    "the arm is shown to cause instability, but its runs that survive are significantly "
    "better, or it diverged in fewer runs",
    holds={"fix": "harm"},
)
COLLAPSE = Row(
    "2b",
    "INCONCLUSIVE",
    "the arm diverges in every seed, the baseline in none",
    holds={"collapse": True},
    reason="it diverges in every seed and the baseline in none, which so few seeds describe and "
    "cannot test",
)
WORSE = Row(
    "3",
    "REJECT",
    "the arm is significantly worse",
    holds={"quality": "Q-", "fix": ["harm", "unshown"]},
)
WORSE_ELSEWHERE = Row(
    "3b",
    "REJECT",
    "the arm is significantly worse on another primary endpoint",
    holds={"elsewhere": ["worse", "within margin"]},
)
OVER_BUDGET = Row("4", "REJECT", "a cost is over its budget", holds={"budget": "over"})
SAME = Row(
    "5",
    "NO EFFECT",
    "the effect is shown to lie inside the margin",
    holds={"quality": "Q0"},
    reason="no effect worth having",
    claims=False,
)
GAIN = Row(
    "6",
    "ADOPT",
    "the arm is significantly better, and no registered budget is exceeded",
    holds={"quality": "Q+", "budget": "within"},
)
COST_OPEN = Row(
    "7",
    "INCONCLUSIVE",
    "the arm is significantly better, a cost is not shown within its budget",
    holds={"quality": "Q+"},
    open="cost",
)
UNRESOLVED = Row(
    "8",
    "INCONCLUSIVE",
    "anything else",
    reason="more seeds are needed",
    open="quality",
    claims=False,
)
# A cost that is shown rejects whatever the gain; a better effect never gets a worse verdict.
SUPERIORITY = Rule(
    "superiority",
    "superiority",
    keys=("calibration_budget", "throughput_budget"),
    rows=(
        HARM,
        WORSE,
        WORSE_ELSEWHERE,
        OVER_BUDGET,
        HARM_AT_A_GAIN,
        COLLAPSE,
        Row(
            "4b",
            "INCONCLUSIVE",
            "the arm is shown to cure instability, but its runs that survive are "
            "significantly worse, or it diverged in more runs",
            holds=[{"fix": "fix", "quality": "Q-"}, {"fix": "fix", "divergence": "more"}],
        ),
        Row(
            "4c",
            "ADOPT",
            "the arm is shown to cure instability, and no registered budget is exceeded",
            holds={"fix": "fix", "budget": "within"},
        ),
        Row(
            "4d",
            "INCONCLUSIVE",
            "the arm is shown to cure instability, a cost is not shown within its budget",
            holds={"fix": "fix"},
            open="cost",
        ),
        SAME,
        GAIN,
        COST_OPEN,
        UNRESOLVED,
    ),
)
# To adopt takes two tests, that the arm is no worse and that it has the benefit, so their number
# needs no adjustment (an intersection-union test; Berger 1982).
NON_INFERIORITY = Rule(
    "non_inferiority",
    "non-inferiority with a benefit",
    keys=("calibration_budget", "throughput_budget", "benefit", "least_benefit"),
    rows=(
        HARM,
        replace(
            WORSE,
            when="the arm is significantly worse, and not shown to stay within the margin",
            holds={"quality": "Q-", "not_worse": False},
        ),
        replace(
            WORSE_ELSEWHERE,
            when="another primary endpoint is significantly worse, and not shown to stay in its "
            "margin",
            holds={"elsewhere": "worse"},
        ),
        OVER_BUDGET,
        Row("5", "REJECT", "the benefit is shown to be absent", holds={"benefit": "absent"}),
        HARM_AT_A_GAIN,
        COLLAPSE,
        replace(
            GAIN,
            when="no worse, the benefit is shown, costs are within the budgets",
            holds={"not_worse": True, "benefit": "shown", "budget": "within"},
        ),
        replace(
            COST_OPEN,
            when="no worse, the benefit is shown, a cost is not shown within its budget",
            holds={"not_worse": True, "benefit": "shown"},
        ),
        Row(
            "8",
            "INCONCLUSIVE",
            "no worse, the benefit is not shown",
            holds={"not_worse": True},
            open="benefit",
            claims=False,
        ),
        replace(UNRESOLVED, id="9", reason="not shown to be no worse", open="not worse"),
    ),
)
# For what should change nothing, such as another precision: nothing is better or worse, only apart.
EQUIVALENCE = Rule(
    "equivalence",
    "equivalence",
    rows=(
        Row(
            "2",
            "DIFFERENT",
            "the arm is shown to cause or to cure instability",
            holds={"fix": ["harm", "fix"]},
        ),
        COLLAPSE,
        replace(SAME, id="3", outcome="EQUIVALENT", reason=""),
        Row("4", "DIFFERENT", "the arm is significantly worse", holds={"quality": "Q-"}),
        Row("5", "DIFFERENT", "the arm is significantly better", holds={"quality": "Q+"}),
        replace(UNRESOLVED, id="6"),
    ),
)
RULES = {rule.name: rule for rule in (EQUIVALENCE, NON_INFERIORITY, SUPERIORITY)}


def find_rule(study: Study) -> Rule:
    """Return the rule that `study` names; the user's own is imported.

    Raises ParibusError for an unknown name, keys of `[decision]` that the rule does not weigh,
    where it weighs a benefit and none is registered, and for a hypothesis that no verdict of the
    study can support or contradict.
    """
    decision, unset = study.decision, Decision()
    where = f"decision.rule = '{decision.rule}'"
    if ":" in decision.rule:
        rule: Rule = load_own(decision.rule, where, "rule", Rule, study.folder)
    else:
        rule = _shipped(decision.rule)
    for key in KEYS:
        value = getattr(decision, key)
        if key not in rule.keys and value != getattr(unset, key):
            weighed = ", ".join(rule.keys) or "no key"
            raise ParibusError(
                f"decision.{key} = {value!r} has no effect: {where} weighs {weighed}"
            )
    if "benefit" in rule.keys and decision.benefit is None:
        raise ParibusError(
            f"{where} needs a benefit: name an endpoint in decision.benefit, such as "
            "'training_throughput'"
        )
    require_hypotheses(study, rule)
    return rule


def _shipped(name: str) -> Rule:
    if name not in RULES:
        raise ParibusError(
            f"decision.rule: there is no rule '{name}': {nearest(name, RULES)}; your own is "
            "'file.py:name'",
            code="unknown",
        )
    return RULES[name]


def own_rule(study: Study) -> dict[str, Any]:
    """Return what a registration holds of the user's own rule; empty for one that ships."""
    return find_rule(study).record if ":" in study.decision.rule else {}


def rule_of(analysis: Analysis) -> Rule:
    """Return the rule that a study registered. Nothing of the user's is imported."""
    name = analysis.study.decision.rule
    if ":" not in name:
        return _shipped(name)
    return _read_back(json.dumps(analysis.own_rule), f"registration.json, rule '{name}'")


@lru_cache(maxsize=8)
def _read_back(record: str, where: str) -> Rule:
    """Read the rule of a registration from the text of its record, once."""
    return rule_from_record(json.loads(record), where)
