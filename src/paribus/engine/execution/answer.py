"""One finished trial answers tasks, in a worker."""

from __future__ import annotations

from pathlib import Path

import torch

from paribus.engine.data import Dataset
from paribus.engine.evaluation.harness import TaskResults, evaluate_standard, evaluate_tasks
from paribus.engine.execution.messages import AnswerTasks
from paribus.engine.execution.record import write_tasks
from paribus.engine.execution.suite import ANSWERED, FOLDER, answers_folder
from paribus.engine.model import GPT, build_model, load_parameters
from paribus.files import file_digest
from paribus.results import ResultsFolder
from paribus.study import Study


def answer_tasks(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    task: AnswerTasks,
) -> None:
    """Answer `task.request` for one trial, and keep the answers below `task.out`."""
    trial = results.trial(task.arm, task.seed)
    setting = study.setting(trial.arm)
    model = build_model(setting, dataset.vocab_size, study.folder)
    load_parameters(model, trial.read_weights(**task.request.get("weights", {})))
    model = model.to(device)
    outcome = _outcome(study, results, dataset, model, setting.data.seq_len, task)
    folder = answers_folder(Path(task.out), trial.arm, trial.seed)
    write_tasks(folder, outcome)
    sealed = {name: file_digest(folder.path / name) for name in ANSWERED}
    folder.write_json("about.json", outcome.about | {"sha256": sealed})  # last: it is answered


def _outcome(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    model: GPT,
    seq_len: int,
    task: AnswerTasks,
) -> TaskResults:
    request = task.request
    if request["kind"] == "standard":
        return evaluate_standard(
            model,
            dataset.tokenizer,
            seq_len,
            tasks=request["tasks"],
            shots=request["shots"],
            n_items=request["items"],
            data_folder=Path(request["data"]) if request["data"] else None,
        )
    return evaluate_tasks(
        model,
        dataset.tokenizer,
        seq_len,
        results.path / FOLDER,
        tasks=request["tasks"],
        shots=request["shots"],
        n_items=request["items"],
        unknown=study.tasks.unknown,
        suite_sha256=request["suite_sha256"],
    )
