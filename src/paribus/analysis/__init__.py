"""From records to inference, as the study registered it. No torch."""

from paribus.analysis.along import Along, Ratio, Reached
from paribus.analysis.analyse import analyse, analyse_table
from paribus.analysis.choose import (
    Tried,
    caveats,
    choose,
    next_candidates,
    tried_in,
    tuning_record,
)
from paribus.analysis.detectable import Detectable, Sight, detectable, sights
from paribus.analysis.planned import PlannedLooks, least_effect, planned_looks
from paribus.analysis.sampling import (
    Sampling,
    extension_error,
    extension_in_words,
    plan_of,
    sampling_of,
)
from paribus.analysis.schema import Analysis, Check, Contrast, LeftOut, TaskContrast
from paribus.analysis.side_effects import BudgetState, Cost, Costs, Sensitivity, Stabilities
from paribus.analysis.summary import Summary
from paribus.analysis.table import Table, events_in
from paribus.analysis.taking_looks import (
    boundaries,
    look_in_words,
    next_look,
    why_not_these_looks,
    with_all_looks,
)
from paribus.analysis.tuned import Point, SharedContrast, Tuned, tuned

__all__ = [
    "Along",
    "Analysis",
    "BudgetState",
    "Check",
    "Contrast",
    "Cost",
    "Costs",
    "Detectable",
    "LeftOut",
    "PlannedLooks",
    "Point",
    "Ratio",
    "Reached",
    "Sampling",
    "Sensitivity",
    "SharedContrast",
    "Sight",
    "Stabilities",
    "Summary",
    "Table",
    "TaskContrast",
    "Tried",
    "Tuned",
    "analyse",
    "analyse_table",
    "boundaries",
    "caveats",
    "choose",
    "detectable",
    "events_in",
    "extension_error",
    "extension_in_words",
    "least_effect",
    "look_in_words",
    "next_candidates",
    "next_look",
    "plan_of",
    "planned_looks",
    "sampling_of",
    "sights",
    "tried_in",
    "tuned",
    "tuning_record",
    "why_not_these_looks",
    "with_all_looks",
]
