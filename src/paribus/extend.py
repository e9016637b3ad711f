"""What parts of your own are written with: one import for every site that a study can name.

    from paribus.extend import Options, loss, measure, optimizer, probe, schedule, task

Each name is loaded when it is asked for; those of the engine need `pip install 'paribus[train]'`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paribus.decision import Row, Rule
    from paribus.drawing import Drawing
    from paribus.engine.data import corpus
    from paribus.engine.evaluation import Predictions, measure
    from paribus.engine.execution.backends import WORKER, Backend, PipedProcess, backend
    from paribus.engine.execution.backends.jobs import JobBackend, JobOptions, JobState
    from paribus.engine.execution.following import EachTrial
    from paribus.engine.model import (
        Attention,
        Dropout,
        KeyValueCache,
        ModelConfig,
        Seen,
        Shared,
        part,
        study_positions,
    )
    from paribus.engine.probes import StepView, probe
    from paribus.engine.tasks import HeldOut, Question, task
    from paribus.engine.training import (
        Moment,
        Options,
        Taken,
        Update,
        average,
        loss,
        optimizer,
        schedule,
    )
    from paribus.metric import ItemSums, Metric
    from paribus.readers import Run, Source, reader
    from paribus.study import Study
    from paribus.study.trainer import Declaration, TestText, Trainer, TrialRecord

_HOMES = {
    "Attention": "paribus.engine.model",
    "Backend": "paribus.engine.execution.backends",
    "Declaration": "paribus.study.trainer",
    "Drawing": "paribus.drawing",
    "Dropout": "paribus.engine.model",
    "EachTrial": "paribus.engine.execution.following",
    "HeldOut": "paribus.engine.tasks",
    "ItemSums": "paribus.metric",
    "JobBackend": "paribus.engine.execution.backends.jobs",
    "JobOptions": "paribus.engine.execution.backends.jobs",
    "JobState": "paribus.engine.execution.backends.jobs",
    "KeyValueCache": "paribus.engine.model",
    "Metric": "paribus.metric",
    "Moment": "paribus.engine.training",
    "ModelConfig": "paribus.engine.model",
    "Options": "paribus.study.choices",
    "PipedProcess": "paribus.engine.execution.backends",
    "Predictions": "paribus.engine.evaluation",
    "Question": "paribus.engine.tasks",
    "Row": "paribus.decision",
    "Rule": "paribus.decision",
    "Run": "paribus.readers",
    "Seen": "paribus.engine.model",
    "Shared": "paribus.engine.model",
    "Source": "paribus.readers",
    "StepView": "paribus.engine.probes",
    "Study": "paribus.study",
    "Taken": "paribus.engine.training",
    "TestText": "paribus.study.trainer",
    "Trainer": "paribus.study.trainer",
    "TrialRecord": "paribus.study.trainer",
    "Update": "paribus.engine.training",
    "WORKER": "paribus.engine.execution.backends",
    "average": "paribus.engine.training",
    "backend": "paribus.engine.execution.backends",
    "corpus": "paribus.engine.data",
    "loss": "paribus.engine.training",
    "measure": "paribus.engine.evaluation",
    "optimizer": "paribus.engine.training",
    "part": "paribus.engine.model",
    "probe": "paribus.engine.probes",
    "reader": "paribus.readers",
    "schedule": "paribus.engine.training",
    "study_positions": "paribus.engine.model",
    "task": "paribus.engine.tasks",
}

__all__ = [
    "WORKER",
    "Attention",
    "Backend",
    "Declaration",
    "Drawing",
    "Dropout",
    "EachTrial",
    "HeldOut",
    "ItemSums",
    "JobBackend",
    "JobOptions",
    "JobState",
    "KeyValueCache",
    "Metric",
    "ModelConfig",
    "Moment",
    "Options",
    "PipedProcess",
    "Predictions",
    "Question",
    "Row",
    "Rule",
    "Run",
    "Seen",
    "Shared",
    "Source",
    "StepView",
    "Study",
    "Taken",
    "TestText",
    "Trainer",
    "TrialRecord",
    "Update",
    "average",
    "backend",
    "corpus",
    "loss",
    "measure",
    "optimizer",
    "part",
    "probe",
    "reader",
    "schedule",
    "study_positions",
    "task",
]


def __dir__() -> list[str]:
    """Return the names, though nothing of them has been loaded yet."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paribus.extend' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
