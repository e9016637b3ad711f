"""From records to inference, as the study registered it. No torch."""

from paribus.analysis.analyse import analyse, analyse_table
from paribus.analysis.detectable import Detectable, Sight, detectable, sights
from paribus.analysis.schema import Analysis, Check, Contrast, LeftOut, Summary, TaskContrast
from paribus.analysis.side_effects import BudgetState, Cost, Costs, Sensitivity, Stabilities
from paribus.analysis.table import Table

__all__ = [
    "Analysis",
    "BudgetState",
    "Check",
    "Contrast",
    "Cost",
    "Costs",
    "Detectable",
    "LeftOut",
    "Sensitivity",
    "Sight",
    "Stabilities",
    "Summary",
    "Table",
    "TaskContrast",
    "analyse",
    "analyse_table",
    "detectable",
    "sights",
]
