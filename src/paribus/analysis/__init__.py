"""From records to inference, as the study registered it. No torch."""

from paribus.analysis.analyse import analyse, analyse_table
from paribus.analysis.calibration import Calibration, Rate, calibrate
from paribus.analysis.detectable import Detectable, detectable
from paribus.analysis.parts import (
    Analysis,
    BudgetState,
    Check,
    Contrast,
    Cost,
    Costs,
    LeftOut,
    Sensitivity,
    Stabilities,
    Summary,
    TaskContrast,
)

__all__ = [
    "Analysis",
    "BudgetState",
    "Calibration",
    "Check",
    "Contrast",
    "Cost",
    "Costs",
    "Detectable",
    "LeftOut",
    "Rate",
    "Sensitivity",
    "Stabilities",
    "Summary",
    "TaskContrast",
    "analyse",
    "analyse_table",
    "calibrate",
    "detectable",
]
