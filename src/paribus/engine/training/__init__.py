"""Training: replicas of one model in lockstep, their optimizer, loss and schedule."""

from paribus.engine.training.averages import Taken as Taken
from paribus.engine.training.averages import average as average
from paribus.engine.training.graphs import GRAPHED_STEPS as GRAPHED_STEPS
from paribus.engine.training.groups import is_decayed as is_decayed
from paribus.engine.training.groups import optimizer_slots as optimizer_slots
from paribus.engine.training.losses import loss as loss
from paribus.engine.training.optimizers import Optimizer as Optimizer
from paribus.engine.training.optimizers import Update as Update
from paribus.engine.training.optimizers import optimizer as optimizer
from paribus.engine.training.schedules import Moment as Moment
from paribus.engine.training.schedules import Scheduled as Scheduled
from paribus.engine.training.schedules import schedule as schedule
from paribus.engine.training.state import MEASURED as MEASURED
from paribus.engine.training.state import WEIGHTS as WEIGHTS
from paribus.engine.training.state import ReplicaState as ReplicaState
from paribus.engine.training.step_metrics import COLUMNS as COLUMNS
from paribus.engine.training.step_metrics import DRAWINGS as DRAWINGS
from paribus.engine.training.step_metrics import LOSS_SCALING as LOSS_SCALING
from paribus.engine.training.step_metrics import METRICS as METRICS
from paribus.engine.training.step_metrics import OBJECTIVE as OBJECTIVE
from paribus.engine.training.step_metrics import auxiliary_drawing as auxiliary_drawing
from paribus.engine.training.trainer import Trainer as Trainer
from paribus.study.choices import Options as Options
