"""Settings of the built-in trainer: data, model, training and measurements."""

from paribus.engine.setting.architecture import Embedding, Init, Model
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
    OF_FLOAT16,
    SMALLEST_SCALE,
    LossScale,
    Setting,
    Training,
    rows_of,
)

__all__ = [
    "CORPUS",
    "OF_FLOAT16",
    "SMALLEST_SCALE",
    "Data",
    "Embedding",
    "Evaluation",
    "Init",
    "LossScale",
    "Model",
    "Probes",
    "Ramp",
    "Setting",
    "Tasks",
    "Training",
    "curve_steps",
    "is_open",
    "rows_of",
    "with_precision",
]
