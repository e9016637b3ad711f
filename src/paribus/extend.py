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
    from paribus.runs.executors import Backend, backend
    from paribus.runs.executors.jobs import JobBackend, JobOptions, JobState
    from paribus.runs.trackers import EachTrial
    from paribus.study import Study
    from paribus.study.trainer import Declaration, TestText, Trainer, TrialRecord

_HOMES = {
    name: module
    for module, names in {
        "paribus.decision": "Row Rule",
        "paribus.drawing": "Drawing",
        "paribus.engine.data": "corpus",
        "paribus.engine.evaluation": "Predictions measure",
        "paribus.engine.model": (
            "Attention Dropout KeyValueCache ModelConfig Seen Shared part study_positions"
        ),
        "paribus.engine.probes": "StepView probe",
        "paribus.engine.tasks": "HeldOut Question task",
        "paribus.engine.training": "Moment Taken Update average loss optimizer schedule",
        "paribus.metric": "ItemSums Metric",
        "paribus.readers": "Run Source reader",
        "paribus.runs.executors": "Backend backend",
        "paribus.runs.executors.jobs": "JobBackend JobOptions JobState",
        "paribus.runs.trackers": "EachTrial",
        "paribus.study": "Study",
        "paribus.study.choices": "Options",
        "paribus.study.trainer": "Declaration TestText Trainer TrialRecord",
    }.items()
    for name in names.split()
}

__all__ = [
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
