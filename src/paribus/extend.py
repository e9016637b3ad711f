"""Imports for custom parts: models, losses, probes, tasks, trainers and readers.

    from paribus.extend import Options, loss, measure, optimizer, probe, schedule, task

Each name is loaded on first use; those of the engine need `pip install 'paribus[train]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paribus.declared import homes, load_name

if TYPE_CHECKING:
    from paribus.decision import Row as Row
    from paribus.decision import Rule as Rule
    from paribus.drawing import Drawing as Drawing
    from paribus.engine.data import corpus as corpus
    from paribus.engine.evaluation import Predictions as Predictions
    from paribus.engine.evaluation import measure as measure
    from paribus.engine.model import Attention as Attention
    from paribus.engine.model import Dropout as Dropout
    from paribus.engine.model import KeyValueCache as KeyValueCache
    from paribus.engine.model import ModelConfig as ModelConfig
    from paribus.engine.model import Seen as Seen
    from paribus.engine.model import Shared as Shared
    from paribus.engine.model import part as part
    from paribus.engine.model import study_positions as study_positions
    from paribus.engine.probes import StepView as StepView
    from paribus.engine.probes import probe as probe
    from paribus.engine.tasks import HeldOut as HeldOut
    from paribus.engine.tasks import Question as Question
    from paribus.engine.tasks import task as task
    from paribus.engine.training import Moment as Moment
    from paribus.engine.training import Taken as Taken
    from paribus.engine.training import Update as Update
    from paribus.engine.training import average as average
    from paribus.engine.training import loss as loss
    from paribus.engine.training import optimizer as optimizer
    from paribus.engine.training import schedule as schedule
    from paribus.metric import ItemSums as ItemSums
    from paribus.metric import Metric as Metric
    from paribus.readers import Run as Run
    from paribus.readers import Source as Source
    from paribus.readers import reader as reader
    from paribus.study import Study as Study
    from paribus.study.choices import Options as Options
    from paribus.study.protocol import Trainer as Trainer
    from paribus.study.trainer import Declaration as Declaration
    from paribus.study.trainer import TestText as TestText
    from paribus.study.trainer import TrialRecord as TrialRecord

_HOMES = homes(__file__)
__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    """Return the names without loading them."""
    return __all__


def __getattr__(name: str) -> Any:
    return load_name(name, __name__, _HOMES)
