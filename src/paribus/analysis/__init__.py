"""From records to inference, as the study registered it. No torch."""

from paribus.analysis.along import Along, Ratio
from paribus.analysis.analyse import analyse
from paribus.analysis.detectable import Detectable, detectable, sights
from paribus.analysis.looks import (
    PlannedLooks,
    boundaries,
    least_effect,
    look_text,
    next_look,
    planned_looks,
    why_not_these_looks,
)
from paribus.analysis.sampling import extension_text, plan_of, sampling_of
from paribus.analysis.schema import Analysis, Contrast, Cost, Costs, Interacting, TaskContrast
from paribus.analysis.table import Table, events_in
from paribus.analysis.tuning import Point, Tuned, tuning_record

__all__ = [
    "Along",
    "Analysis",
    "Contrast",
    "Cost",
    "Costs",
    "Detectable",
    "Interacting",
    "PlannedLooks",
    "Point",
    "Ratio",
    "Table",
    "TaskContrast",
    "Tuned",
    "analyse",
    "boundaries",
    "detectable",
    "events_in",
    "extension_text",
    "least_effect",
    "look_text",
    "next_look",
    "plan_of",
    "planned_looks",
    "sampling_of",
    "sights",
    "tuning_record",
    "why_not_these_looks",
]
