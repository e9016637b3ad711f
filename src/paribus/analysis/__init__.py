"""Statistical analysis of a study's results, independent of PyTorch."""

from paribus.analysis.analyse import analyse
from paribus.analysis.detectable import Detectable, detectable
from paribus.analysis.looks import least_effect, look_text, next_look, planned_looks
from paribus.analysis.schema import Analysis, BudgetState, Contrast, Cost, Costs, Interacting
from paribus.analysis.table import Table, events_in, plan_of
from paribus.analysis.tuning import Point, Tuned, tuning_record
