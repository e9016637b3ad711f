"""When is a change adopted? A registered rule, one file each: its rows, conditions and words."""

from paribus.decision.evidence import Budget, Evidence, Fix, Quality, gather
from paribus.decision.null import Calibration, Rate, calibrate
from paribus.decision.reach import OutOfReach, out_of_reach
from paribus.decision.rule import Outcome, Row
from paribus.decision.stability_gate import ROWS, decide_row
from paribus.decision.verdict import (
    TESTS,
    Verdict,
    decide,
    disagreements,
    divergence_in_words,
    effect_in_words,
    fixed_items,
    untested,
)

__all__ = [
    "ROWS",
    "TESTS",
    "Budget",
    "Calibration",
    "Evidence",
    "Fix",
    "OutOfReach",
    "Outcome",
    "Quality",
    "Rate",
    "Row",
    "Verdict",
    "calibrate",
    "decide",
    "decide_row",
    "disagreements",
    "divergence_in_words",
    "effect_in_words",
    "fixed_items",
    "gather",
    "out_of_reach",
    "untested",
]
