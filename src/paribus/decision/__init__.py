"""When is a change adopted? A registered rule, one file each: its rows, conditions and words."""

from paribus.decision.evidence import Evidence, Fix, Quality, gather
from paribus.decision.rule import Outcome, Row
from paribus.decision.stability_gate import ROWS, decide_row
from paribus.decision.verdict import Verdict, decide, effect_in_words

__all__ = [
    "ROWS",
    "Evidence",
    "Fix",
    "Outcome",
    "Quality",
    "Row",
    "Verdict",
    "decide",
    "decide_row",
    "effect_in_words",
    "gather",
]
