"""The rules that ship, made of rows that they share; and the rule that a study names.

Quality of a contrast, on the endpoint that is judged, and all else that a row may read: `State`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, lru_cache
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
    when="the arm is shown to cause instability",
    holds=lambda s: s.fix == "harm",
)
HARM_AT_A_GAIN = Row(
    "2a",
    "INCONCLUSIVE",
    when="the arm is shown to cause instability, but its runs that survive are significantly "
    "better, or it diverged in fewer runs",
    holds=lambda s: s.fix == "harm",
)
HARM_WITHOUT_GAIN = replace(
    HARM, holds=lambda s: s.fix == "harm" and s.quality != "Q+" and s.divergence != "fewer"
)
COLLAPSE = Row(
    "2b",
    "INCONCLUSIVE",
    when="the arm diverges in every seed, the baseline in none",
    holds=lambda s: s.collapse,
    reason="it diverges in every seed and the baseline in none, which so few seeds describe and "
    "cannot test",
)
WORSE = Row(
    "3",
    "REJECT",
    when="the arm is significantly worse",
    holds=lambda s: s.quality == "Q-",
)
WORSE_ELSEWHERE = Row(
    "3b",
    "REJECT",
    when="the arm is significantly worse on another primary endpoint",
    holds=lambda s: s.elsewhere != "not worse",
)
OVER_BUDGET = Row(
    "4",
    "REJECT",
    when="a cost is over its budget",
    holds=lambda s: s.budget == "over",
)
SAME = Row(
    "5",
    "NO EFFECT",
    when="the effect is shown to lie inside the margin",
    holds=lambda s: s.quality == "Q0",
    reason="no effect worth having",
    claims=False,
)
BETTER = replace(WORSE, when="the arm is significantly better", holds=lambda s: s.quality == "Q+")
CURE_AT_A_LOSS = Row(
    "4b",
    "INCONCLUSIVE",
    when="the arm is shown to cure instability, but its runs that survive are significantly "
    "worse, or it diverged in more runs",
    holds=lambda s: s.fix == "fix" and (s.quality == "Q-" or s.divergence == "more"),
)
CURE = Row(
    "4c",
    "ADOPT",
    when="the arm is shown to cure instability, and no registered budget is exceeded",
    holds=lambda s: s.fix == "fix" and s.budget == "within",
)
CURE_COST_OPEN = Row(
    "4d",
    "INCONCLUSIVE",
    when="the arm is shown to cure instability, a cost is not shown within its budget",
    holds=lambda s: s.fix == "fix",
    open="cost",
)
GAIN = Row(
    "6",
    "ADOPT",
    when="the arm is significantly better, and no registered budget is exceeded",
    holds=lambda s: s.quality == "Q+" and s.budget == "within",
)
COST_OPEN = Row(
    "7",
    "INCONCLUSIVE",
    when="the arm is significantly better, a cost is not shown within its budget",
    holds=lambda s: s.quality == "Q+",
    open="cost",
)
UNRESOLVED = Row(
    "8",
    "INCONCLUSIVE",
    when="anything else",
    holds=lambda s: True,
    reason="more seeds are needed",
    open="quality",
    claims=False,
)
# A cost that is shown rejects whatever the gain; a better effect never gets a worse verdict.
SUPERIORITY = Rule(
    name="superiority",
    title="superiority",
    adopts="An arm is adopted if it is significantly better or is shown to cure instability, and "
    "is not significantly worse on any primary endpoint{budgets}.",
    keys=("calibration_budget", "throughput_budget"),
    rows=(
        HARM_WITHOUT_GAIN,
        replace(WORSE, holds=lambda s: s.quality == "Q-" and s.fix != "fix"),
        WORSE_ELSEWHERE,
        OVER_BUDGET,
        HARM_AT_A_GAIN,
        COLLAPSE,
        CURE_AT_A_LOSS,
        CURE,
        CURE_COST_OPEN,
        SAME,
        GAIN,
        COST_OPEN,
        UNRESOLVED,
    ),
)


# To adopt takes two tests, that the arm is no worse and that it has the benefit, so their number
# needs no adjustment (an intersection-union test; Berger 1982).
NON_INFERIORITY = Rule(
    name="non_inferiority",
    title="non-inferiority with a benefit",
    adopts="An arm is adopted where it is shown to be no worse than by the margin and to gain more "
    "than {least} in {benefit}, and loses no other primary endpoint beyond its margin{budgets}.",
    keys=("calibration_budget", "throughput_budget", "benefit", "least_benefit"),
    rows=(
        HARM_WITHOUT_GAIN,
        replace(
            WORSE,
            when="the arm is significantly worse, and not shown to stay within the margin",
            holds=lambda s: s.quality == "Q-" and not s.not_worse,
        ),
        replace(
            WORSE_ELSEWHERE,
            when="another primary endpoint is significantly worse, and not shown to stay in its "
            "margin",
            holds=lambda s: s.elsewhere == "worse",
        ),
        OVER_BUDGET,
        Row(
            "5",
            "REJECT",
            when="the benefit is shown to be absent",
            holds=lambda s: s.benefit == "absent",
        ),
        HARM_AT_A_GAIN,
        COLLAPSE,
        Row(
            "6",
            "ADOPT",
            when="no worse, the benefit is shown, costs are within the budgets",
            holds=lambda s: s.not_worse and s.benefit == "shown" and s.budget == "within",
        ),
        replace(
            COST_OPEN,
            when="no worse, the benefit is shown, a cost is not shown within its budget",
            holds=lambda s: s.not_worse and s.benefit == "shown",
        ),
        Row(
            "8",
            "INCONCLUSIVE",
            when="no worse, the benefit is not shown",
            holds=lambda s: s.not_worse,
            open="benefit",
            claims=False,
        ),
        replace(
            UNRESOLVED,
            id="9",
            reason="not shown to be no worse",
            open="not worse",
        ),
    ),
)

# For what should change nothing, such as another precision: nothing is better or worse, only apart.
EQUIVALENCE = Rule(
    name="equivalence",
    title="equivalence",
    adopts="Two arms are called equivalent where the change is shown to lie inside the margin and "
    "training is not shown to be more or less stable; nothing is adopted.",
    rows=(
        replace(
            HARM,
            outcome="DIFFERENT",
            when="the arm is shown to cause or to cure instability",
            holds=lambda s: s.fix != "unshown",
        ),
        COLLAPSE,
        replace(
            SAME,
            id="3",
            outcome="EQUIVALENT",
            reason="",
        ),
        replace(
            WORSE,
            id="4",
            outcome="DIFFERENT",
        ),
        replace(
            BETTER,
            id="5",
            outcome="DIFFERENT",
        ),
        replace(
            UNRESOLVED,
            id="6",
        ),
    ),
)
RULES = {rule.name: rule for rule in (EQUIVALENCE, NON_INFERIORITY, SUPERIORITY)}


def shipped_rules() -> dict[str, Rule]:
    """Return the rules that ship, by name."""
    return dict(RULES)


def find_rule(study: Study) -> Rule:
    """Return the rule that `study` names; the user's own is imported, and tried on every state.

    Of the user's own this is what a registration holds and reads back: its table and its words.

    Raises ParibusError for an unknown name, a rule that is not whole, keys of `[decision]` that it
    does not weigh, where it weighs a benefit and none is registered, and for a hypothesis that no
    verdict of the study can support or contradict.
    """
    name = study.decision.rule
    where = f"decision.rule = '{name}'"
    if ":" in name:
        rule = _as_registered(load_own(name, where, "rule", Rule, study.folder), where)
    else:
        rule = _shipped(name)
    _require_keys(rule, study.decision, where)
    require_hypotheses(study, rule)
    return rule


@cache
def _as_registered(rule: Rule, where: str) -> Rule:
    """Return the user's own rule as its record says it; conditions are code, and may do anything.

    Tried once a process: its 7,776 states take a while, and its module is loaded once as well.
    """
    try:
        if type(rule) is not Rule or rule.registered is not None:
            raise ValueError(
                "it is a Rule itself, no subclass, and `registered` is left out: its table comes "
                "from its conditions"
            )
        rule.require_whole()
        record = rule.record
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ParibusError(f"{where}: {text}") from error
    return rule_from_record(record, where)


def own_rule(study: Study) -> dict[str, Any]:
    """Return what a registration holds of the user's own rule; empty for one that ships."""
    return find_rule(study).record if ":" in study.decision.rule else {}


def rule_of(analysis: Analysis) -> Rule:
    """Return the rule that a study registered. Nothing of the user's is imported."""
    name = analysis.study.decision.rule
    if ":" in name:
        return _read_back(json.dumps(analysis.own_rule), f"registration.json, rule '{name}'")
    return _shipped(name)


@lru_cache(maxsize=8)
def _read_back(record: str, where: str) -> Rule:
    """Read the rule of a registration from the text of its record, once."""
    return rule_from_record(json.loads(record), where)


def _shipped(name: str) -> Rule:
    if name not in RULES:
        hint = nearest(name, RULES)
        raise ParibusError(
            f"decision.rule: there is no rule '{name}': {hint}{'' if hint.endswith('?') else '.'} "
            "They are declared in paribus/decision/rules.py; your own is 'file.py:name'"
        )
    return RULES[name]


def _require_keys(rule: Rule, decision: Decision, where: str) -> None:
    """Raise ParibusError where what is set has no effect, or what is weighed is not set."""
    unset = Decision()
    for key in KEYS:
        value = getattr(decision, key)
        if key in rule.keys or value == getattr(unset, key):
            continue
        weighed = ", ".join(rule.keys) or "no key"
        raise ParibusError(
            f"decision.{key} = {getattr(decision, key)!r} has no effect: {where} weighs {weighed}"
        )
    if "benefit" in rule.keys and decision.benefit is None:
        raise ParibusError(
            f"{where} needs a benefit: name an endpoint in decision.benefit, such as "
            "'training_throughput'"
        )
