"""Verdicts by the registered rule, its rows and their words, and the hypotheses they judge."""

from paribus.decision.evidence import Evidence, State, benefit_of, worse_elsewhere
from paribus.decision.hypotheses import Judgement, judge
from paribus.decision.null import Calibration, calibrate
from paribus.decision.reach import out_of_reach
from paribus.decision.rule import OUTCOMES, UNJUDGED, Row, Rule
from paribus.decision.rules import find_rule, own_rule, rule_of, shipped_rules
from paribus.decision.verdict import (
    TESTS,
    Verdict,
    decide,
    disagreements,
    divergence_in_words,
    effect_in_words,
    fixed_items,
    missed,
    shared_caveats,
    untested,
    verdict_record,
)

__all__ = [
    "OUTCOMES",
    "TESTS",
    "UNJUDGED",
    "Calibration",
    "Evidence",
    "Judgement",
    "Row",
    "Rule",
    "State",
    "Verdict",
    "benefit_of",
    "calibrate",
    "decide",
    "disagreements",
    "divergence_in_words",
    "effect_in_words",
    "find_rule",
    "fixed_items",
    "judge",
    "missed",
    "out_of_reach",
    "own_rule",
    "rule_of",
    "shared_caveats",
    "shipped_rules",
    "untested",
    "verdict_record",
    "worse_elsewhere",
]
