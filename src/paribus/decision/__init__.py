"""When is a change adopted? A registered rule, one file each: its rows, conditions and words."""

from paribus.decision.evidence import (
    Benefit,
    Budget,
    Divergence,
    Elsewhere,
    Evidence,
    Fix,
    Quality,
    benefit_of,
    gather,
    worse_elsewhere,
)
from paribus.decision.find import find_rule, own_rule, rule_of, shipped_rules
from paribus.decision.null import Calibration, Rate, calibrate
from paribus.decision.reach import OutOfReach, out_of_reach
from paribus.decision.row import HYPOTHESES, OUTCOMES, UNJUDGED, Outcome, Row, State
from paribus.decision.rule import Rule
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
)

__all__ = [
    "HYPOTHESES",
    "OUTCOMES",
    "TESTS",
    "UNJUDGED",
    "Benefit",
    "Budget",
    "Calibration",
    "Divergence",
    "Elsewhere",
    "Evidence",
    "Fix",
    "OutOfReach",
    "Outcome",
    "Quality",
    "Rate",
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
    "gather",
    "missed",
    "out_of_reach",
    "own_rule",
    "rule_of",
    "shared_caveats",
    "shipped_rules",
    "untested",
    "worse_elsewhere",
]
