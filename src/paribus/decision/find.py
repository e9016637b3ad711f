"""Which rule a study has: one that ships, by its name, or the user's own."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

from paribus.analysis import Analysis
from paribus.decision.rule import Rule, rule_from_record
from paribus.declared import declared
from paribus.errors import ParibusError
from paribus.study import Decision, Study
from paribus.study.choices import require_declared
from paribus.study.importing import load_own

PACKAGE = "paribus.decision.rules"
BENEFIT = "benefit"


@cache
def shipped_rules() -> dict[str, Rule]:
    """The rules in `rules/`, by name."""
    return declared(PACKAGE, Rule)


def find_rule(study: Study) -> Rule:
    """The rule that `study` names; the user's own is imported, and tried on every state.

    Of the user's own this is what a registration holds and reads back: its table and its words.

    Raises ParibusError for an unknown name, a rule that is not whole, keys of `[decision]` that it
    does not weigh, and where it weighs a benefit and none is registered.
    """
    name = study.decision.rule
    where = f"decision.rule = '{name}'"
    if ":" in name:
        rule = _as_registered(load_own(name, where, "rule", _is_rule, study.folder), where)
    else:
        rule = _shipped(name)
    _require_keys(rule, study.decision, where)
    return rule


@cache
def _as_registered(rule: Rule, where: str) -> Rule:
    """The user's own rule as its record says it; conditions are code, and may do anything.

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
        told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ParibusError(f"{where}: {told}") from error
    return rule_from_record(record, where)


def own_rule(study: Study) -> dict[str, Any]:
    """What a registration holds of the user's own rule; empty for one that ships."""
    return find_rule(study).record if ":" in study.decision.rule else {}


def rule_of(analysis: Analysis) -> Rule:
    """The rule that a study registered. Nothing of the user's is imported."""
    name = analysis.study.decision.rule
    if ":" in name:
        return _read_back(json.dumps(analysis.own_rule), f"registration.json, rule '{name}'")
    return _shipped(name)


@lru_cache(maxsize=8)
def _read_back(record: str, where: str) -> Rule:
    """The rule of a registration, from the text of its record: read once."""
    return rule_from_record(json.loads(record), where)


def _shipped(name: str) -> Rule:
    return require_declared(name, shipped_rules(), "decision.rule", "rule", PACKAGE)


def _is_rule(value: object) -> bool:
    return isinstance(value, Rule)


def _require_keys(rule: Rule, decision: Decision, where: str) -> None:
    """Raise ParibusError where what is set has no effect, or what is weighed is not set."""
    plain = Decision()
    for key in type(decision).model_fields:
        if key == "rule" or key in rule.keys or getattr(decision, key) == getattr(plain, key):
            continue
        weighed = ", ".join(rule.keys) or "no key"
        raise ParibusError(
            f"decision.{key} = {getattr(decision, key)!r} has no effect: {where} weighs {weighed}"
        )
    if BENEFIT in rule.keys and decision.benefit is None:
        raise ParibusError(
            f"{where} needs a benefit: name an endpoint in decision.benefit, such as "
            "'training_throughput'"
        )
