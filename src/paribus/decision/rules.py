"""Built-in decision rules (rules.toml), and lookup of a study's rule."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from paribus.analysis import Analysis
from paribus.decision.hypotheses import require_hypotheses
from paribus.decision.rule import KEYS, Rule, rule_from_record
from paribus.errors import ParibusError
from paribus.study import Decision, Study
from paribus.study.choices import require_declared
from paribus.study.custom_code import load_own

FILE = Path(__file__).with_name("rules.toml")
SHIPPED = tomllib.loads(FILE.read_text(encoding="utf-8"))


@cache
def shipped_rule(name: str) -> Rule:
    """Load a built-in rule by name. Raises ParibusError if the name is unknown."""
    record = require_declared(name, SHIPPED, "decision.rule", "rule")
    return rule_from_record({"name": name} | record, FILE.name)


def find_rule(study: Study) -> Rule:
    """Load the decision rule of a study, importing custom code, and validate the study against it.

    Raises ParibusError for an unknown rule, for unused keys of `[decision]`, for a missing benefit,
    and for hypotheses with unknown names.
    """
    decision, unset = study.decision, Decision()
    where = f"decision.rule = '{decision.rule}'"
    if ":" in decision.rule:
        rule: Rule = load_own(decision.rule, where, "rule", Rule, study.folder)
    else:
        rule = shipped_rule(decision.rule)
    for key in KEYS:
        value = getattr(decision, key)
        if key not in rule.keys and value != getattr(unset, key):
            weighed = ", ".join(rule.keys) or "no key"
            raise ParibusError(
                f"decision.{key} = {value!r} has no effect, because {where} uses {weighed}; "
                f"remove {key}"
            )
    if "benefit" in rule.keys and decision.benefit is None:
        raise ParibusError(
            f"{where} requires a benefit; set decision.benefit to an endpoint, such as "
            "'training_throughput'"
        )
    require_hypotheses(study, rule)
    return rule


def own_rule(study: Study) -> dict[str, Any]:
    """Return the record of a custom rule for the registration, or {} for a built-in rule."""
    return find_rule(study).record if ":" in study.decision.rule else {}


def rule_of(analysis: Analysis) -> Rule:
    """Return the registered decision rule of a study, without importing custom code."""
    name = analysis.study.decision.rule
    if ":" not in name:
        return shipped_rule(name)
    return rule_from_record(analysis.own_rule, f"registration.json, rule '{name}'")
