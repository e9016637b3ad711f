"""paribus (*ceteris paribus*, all else equal): does a change to a language model's training help?

import paribus

study = paribus.load_study("quickstart")     # a built-in study, or the path of a TOML file
results = paribus.run(study)                 # run the trials that are missing
results.scores  # a pyarrow table: one row per trial
paribus.decide(paribus.analyse(results))  # the verdict on every arm
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paribus.declared import PROVIDED, homes, load_name
from paribus.schema import VERSION

if TYPE_CHECKING:
    from paribus.analysis import analyse as analyse, detectable as detectable
    from paribus.decision import decide as decide
    from paribus.engine.execution.evaluate import evaluate as evaluate
    from paribus.engine.execution.start import estimate as estimate
    from paribus.engine.export import export_trial as export_trial
    from paribus.errors import ParibusError as ParibusError
    from paribus.report.page import write_report as write_report
    from paribus.results import extend as extend, load_results as load_results
    from paribus.runs.run import register as register, run as run
    from paribus.study import (
        Study as Study,
        load_study as load_study,
        shipped_studies as shipped_studies,
    )
    from paribus.trainers.runs import judge as judge
    from paribus.verification import verify as verify

__version__ = VERSION

_HOMES = homes(__file__)  # nothing is loaded before it is asked for
__all__ = sorted(_HOMES)
# What lower layers ask higher ones for, by name: so none of them imports a layer above it.
PROVIDED.update(
    format={
        "stacked": "paribus.engine.format:FORMAT",
        "runs": "paribus.study.runs:FORMAT",
        "command": "paribus.trainers.command.sections:FORMAT",
    },
    records={
        "stacked": "paribus.engine.records:RECORDS",
        "runs": "paribus.results.records:RUNS_RECORDS",
        "command": "paribus.trainers.command.records:RECORDS",
    },
    trainer={
        "stacked": "paribus.engine.execution.runner:EngineRunner",
        "runs": "paribus.trainers.runs:Runs",
        "command": "paribus.trainers.command.trainer:Command",
    },
    function={
        "endpoint_metrics": "paribus.engine.execution.trial.endpoints:endpoint_metrics",
        "own_format": "paribus.study.protocol:OWN_FORMAT",
        "require_runnable": "paribus.engine.execution.runner:require_runnable",
        "judge_runs": "paribus.trainers.runs:judge_runs",
        "unreachable_text": "paribus.report.cautions:unreachable_text",
        "build_report": "paribus.report.model:build_report",
        "card_markdown": "paribus.report.render:card_markdown",
    },
)


def __dir__() -> list[str]:
    """List the public names without importing them."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    return load_name(name, __name__, _HOMES)
