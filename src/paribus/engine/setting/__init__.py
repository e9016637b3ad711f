"""Study settings of the built-in trainer: data, model, training and measurements."""

from paribus.engine.setting.batches import Ramp
from paribus.engine.setting.data import CORPUS, Data
from paribus.engine.setting.sections import (
    Evaluation,
    Probes,
    Tasks,
    curve_steps,
    is_open,
    with_precision,
)
from paribus.engine.setting.setting import (
    Setting,
    Training,
    rows_of,
)
