"""Settings of the built-in trainer: data, model, training and measurements."""

from paribus.engine.setting.architecture import Embedding as Embedding
from paribus.engine.setting.architecture import Init as Init
from paribus.engine.setting.architecture import Model as Model
from paribus.engine.setting.batches import Ramp as Ramp
from paribus.engine.setting.data import CORPUS as CORPUS
from paribus.engine.setting.data import Data as Data
from paribus.engine.setting.sections import Evaluation as Evaluation
from paribus.engine.setting.sections import Probes as Probes
from paribus.engine.setting.sections import Tasks as Tasks
from paribus.engine.setting.sections import curve_steps as curve_steps
from paribus.engine.setting.sections import is_open as is_open
from paribus.engine.setting.sections import with_precision as with_precision
from paribus.engine.setting.setting import OF_FLOAT16 as OF_FLOAT16
from paribus.engine.setting.setting import SMALLEST_SCALE as SMALLEST_SCALE
from paribus.engine.setting.setting import LossScale as LossScale
from paribus.engine.setting.setting import Setting as Setting
from paribus.engine.setting.setting import Training as Training
from paribus.engine.setting.setting import rows_of as rows_of
