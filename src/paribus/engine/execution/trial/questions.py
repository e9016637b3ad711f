"""The tasks that a trained trial is asked: its study's own suite, and the harness's by name."""

from __future__ import annotations

from pathlib import Path

import torch

from paribus.engine.data import Dataset
from paribus.engine.evaluation.harness import (
    SharedRequests,
    TaskResults,
    evaluate_standard,
    evaluate_tasks,
    together,
)
from paribus.engine.execution.trial.suite import standard_data
from paribus.engine.setting import Setting
from paribus.engine.tasks import PINNED, read_standard, read_suite
from paribus.errors import ParibusError
from paribus.study import Study


def run_tasks(
    study: Study,
    model: torch.nn.Module,
    dataset: Dataset,
    setting: Setting,
    folder: Path,
    shared: SharedRequests | None = None,
) -> TaskResults | None:
    """Return what `study` registered of the tasks in `folder`; None where none of them fits.

    Models of one stack are asked the same, and may be given one `shared`. An own module could write
    to what it is given: a model that has one shares nothing.

    Raises ParibusError where a standard task is not the one that was registered.
    """
    if setting.model.modules.named:
        shared = None
    chosen = study.tasks
    parts: list[TaskResults] = []
    offered = read_suite(folder).find(chosen.names) if chosen.names != () else ()
    if any(n in task.shots for task in offered for n in chosen.shots):
        parts.append(
            evaluate_tasks(
                model,
                dataset.tokenizer,
                setting.data.seq_len,
                folder,
                tasks=chosen.names,
                shots=chosen.shots,
                n_items=chosen.items,
                unknown=chosen.unknown,
                shared=shared,
            )
        )
    if chosen.standard:
        parts.append(_standard(study, model, dataset, setting, folder, shared))
    return together(parts) if parts else None


def _standard(
    study: Study,
    model: torch.nn.Module,
    dataset: Dataset,
    setting: Setting,
    folder: Path,
    shared: SharedRequests | None,
) -> TaskResults:
    """Return the harness's tasks, on the very data that were registered."""
    chosen, registered = study.tasks, read_standard(folder)
    found = evaluate_standard(
        model,
        dataset.tokenizer,
        setting.data.seq_len,
        tasks=list(registered),
        shots=chosen.shots,
        n_items=chosen.standard_items,
        data_folder=standard_data(study),
        shared=shared,
    )
    for name, pins in found.pins["tasks"].items():
        other = [key for key in PINNED if pins[key] != registered[name][key]]
        if other:
            raise ParibusError(
                f"task '{name}' is not the one that was registered: its {', '.join(other)} differ; "
                "every trial needs the same data set and the same lm_eval"
            )
    return found
