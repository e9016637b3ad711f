"""When is a change adopted? A registered rule, one file each: its rows, conditions and words."""

from paribus.decision.evidence import Budget, Evidence, Fix, Quality, gather
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
)

__all__ = [
    "ROWS",
    "TESTS",
    "Budget",
    "Evidence",
    "Fix",
    "OutOfReach",
    "Outcome",
    "Quality",
    "Row",
    "Verdict",
    "decide",
    "decide_row",
    "disagreements",
    "divergence_in_words",
    "effect_in_words",
    "gather",
    "out_of_reach",
]
