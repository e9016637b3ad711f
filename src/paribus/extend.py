"""Public names for custom code: models, losses, probes, tasks, trainers and readers.

    from paribus.extend import Options, loss, measure, optimizer, probe, schedule, task

Names are imported on first use; those of the engine require `pip install 'paribus[train]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paribus.declared import homes, load_name

if TYPE_CHECKING:
    from paribus.decision import Row as Row, Rule as Rule
    from paribus.drawing import Drawing as Drawing
    from paribus.engine.data import corpus as corpus
    from paribus.engine.evaluation import Predictions as Predictions, measure as measure
    from paribus.engine.model import (
        Attention as Attention,
        Dropout as Dropout,
        KeyValueCache as KeyValueCache,
        ModelConfig as ModelConfig,
        Shared as Shared,
        part as part,
        study_positions as study_positions,
    )
    from paribus.engine.probes import StepView as StepView, probe as probe
    from paribus.engine.tasks import HeldOut as HeldOut, Question as Question, task as task
    from paribus.engine.training import (
        Moment as Moment,
        Taken as Taken,
        Update as Update,
        average as average,
        loss as loss,
        optimizer as optimizer,
        schedule as schedule,
    )
    from paribus.metric import ItemSums as ItemSums, Metric as Metric
    from paribus.readers import Run as Run, Source as Source, reader as reader
    from paribus.study import Study as Study
    from paribus.study.choices import Options as Options
    from paribus.study.protocol import Trainer as Trainer
    from paribus.study.trainer import (
        Declaration as Declaration,
        TestText as TestText,
        TrialRecord as TrialRecord,
    )

_HOMES = homes(__file__)
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return load_name(name, __name__, _HOMES)
