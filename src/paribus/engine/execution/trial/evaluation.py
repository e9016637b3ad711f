"""The evaluation of trained weights: held-out text, the study's tasks, and tasks asked later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from paribus.digests import plain
from paribus.engine.data import Dataset, open_test
from paribus.engine.data.tokens import tokens_digest
from paribus.engine.evaluation import Evaluation, evaluate_on, own_measures
from paribus.engine.evaluation.blocks import UNITS
from paribus.engine.evaluation.code_length import BITS_PER_BYTE, code_length
from paribus.engine.evaluation.harness.outcome import CELLS, ITEMS, TaskResults, together
from paribus.engine.evaluation.harness.standard import standard
from paribus.engine.evaluation.harness.task_runs import run_tasks, suite_tasks
from paribus.engine.execution.evaluate import ANSWERS
from paribus.engine.execution.trial.suite import FOLDER, standard_data
from paribus.engine.model import GPT, build_model, load_parameters
from paribus.engine.tasks import Pinned, read_standard, read_suite
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, TrialFolder
from paribus.results.formats import write_table
from paribus.results.heldout_part import heldout_folder, purpose
from paribus.study import Study
from paribus.study.trainer import Trial

Scores = dict[str, float | None]


def trained_model(
    study: Study, arm: str, dataset: Dataset, device: torch.device, weights: Mapping[str, Any]
) -> GPT:
    """Return the model of an arm, with the trained weights loaded."""
    model = build_model(study.setting(arm), dataset.vocab_size, study.folder).to(device)
    load_parameters(model, weights)
    return model


def evaluate_text(
    study: Study, model: GPT, dataset: Dataset, seq_len: int
) -> tuple[Evaluation, Scores, dict[str, Any]]:
    """Evaluate a model on the validation text of `dataset`.

    Returns the measures, the scores by metric, and the record of the code length, which is measured
    if the study compares it.
    """
    own = own_measures(study.evaluation.own, study.folder)
    precision = study.evaluation.precision
    heldout = evaluate_on(model, dataset, dataset.validation, seq_len, own, precision)
    scores: Scores = dict(heldout.scores)
    if BITS_PER_BYTE.name not in study.metrics:
        return heldout, scores, {}
    code, blocks = code_length(model, dataset, seq_len, study.evaluation.overlap, precision)
    scores[BITS_PER_BYTE.name] = code["bits"] / code["n_bytes"]
    heldout.blocks.update(blocks)
    return heldout, scores, plain(code)


def evaluate_heldout_part(
    study: Study, results: ResultsFolder, dataset: Dataset, device: torch.device, trial: Trial
) -> None:
    """Evaluate a trial on the test part, which the run has opened for the verdict."""
    finished, folder = results.trial(*trial), heldout_folder(results, *trial)
    model = trained_model(study, trial[0], dataset, device, finished.read_weights())
    tokens = open_test(dataset.test, results, purpose(study.name))
    assert dataset.test is not None
    test_text = replace(
        dataset,
        validation=tokens,
        held_out=dataset.test.text,
        digests=dataset.digests | {"validation": tokens_digest(tokens)},
    )
    seq_len = study.setting(trial[0]).data.seq_len
    heldout, scores, _ = evaluate_text(study, model, test_text, seq_len)
    write_evaluation(folder, heldout)
    # Scores of anything else, such as accuracy on tasks, stay as they were.
    folder.write_json("evaluation.json", finished.read_json("evaluation.json") | plain(scores))
    summary = {"trial": finished.seal, "scores": sorted(scores), "blocks": heldout.division.record}
    folder.write_json("tested.json", summary)  # written last: its presence means evaluated


def ask_tasks(
    study: Study, model: torch.nn.Module, dataset: Dataset, seq_len: int, folder: Path
) -> TaskResults | None:
    """Run the registered tasks in `folder` on a model; return None if none of them fits.

    Raises ParibusError if a standard task is not the one that was registered.
    """
    tasks, results = study.tasks, list[TaskResults]()
    reader = (model, dataset.tokenizer, seq_len)
    if tasks.names != ():
        suite = read_suite(folder)
        if any(n in task.shots for task in suite.find(tasks.names).values() for n in tasks.shots):
            asked = suite_tasks(suite, tasks.names, tasks.unknown)
            results.append(run_tasks(*reader, asked, tasks.shots, tasks.items))
    if tasks.standard:
        registered, n_items = read_standard(folder), tasks.standard_items
        asked = standard(list(registered), n_items, standard_data(study))
        results.append(run_tasks(*reader, asked, tasks.shots, n_items))
        for name, pins in results[-1].pins["tasks"].items():
            known = registered[name]
            differing = [key for key in Pinned.model_fields if pins[key] != getattr(known, key)]
            if differing:
                raise ParibusError(
                    f"task '{name}' is not the one that was registered: its "
                    f"{', '.join(differing)} differ; every trial needs the same data set and the "
                    "same lm_eval"
                )
    if len(results) == 2:
        return together(*results)
    return results[0] if results else None


def answer_request(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    arguments: dict[str, Any],
) -> None:
    """Run the tasks of a `request` (from `paribus.evaluate`) on a finished trial; write and seal
    the answers in the folder `out`."""
    arm, seed, request = (arguments[name] for name in ("arm", "seed", "request"))
    weights = results.trial(arm, seed).read_weights(**request.get("weights", {}))
    model = trained_model(study, arm, dataset, device, weights)
    if request["kind"] == "standard":
        data = Path(request["data"]) if request["data"] else None
        asked = standard(request["tasks"], request["items"], data)
    else:
        suite = read_suite(results.path / FOLDER)
        asked = suite_tasks(suite, request["tasks"], study.tasks.unknown)
    seq_len = study.setting(arm).data.seq_len
    tokenizer, shots = dataset.tokenizer, request["shots"]
    outcome = run_tasks(model, tokenizer, seq_len, asked, shots, request["items"])
    folder = TrialFolder(Path(arguments["out"]), arm, seed)
    write_tasks(folder, outcome)
    folder.write_json("about.json", outcome.about)
    folder.finish(ANSWERS)


def write_evaluation(folder: TrialFolder, evaluation: Evaluation) -> None:
    """Write evaluation.parquet and blocks.parquet."""
    of_unit = "that of the row's column 'unit'"
    units = {
        "measure": "1",
        "part": "1",
        "value": of_unit,
        "total": f"{of_unit}, times tokens or characters",
        "count": "tokens or characters",
        "unit": "1",
    }
    columns: dict[str, Any] = {}
    for name in units:
        values = [getattr(row, name) for row in evaluation.rows]
        columns[name] = np.array([math.nan if value is None else value for value in values])
    folder.write_columns("evaluation.parquet", columns, units)
    columns = evaluation.blocks
    units = {name: UNITS[name] for name in columns}
    folder.write_columns("blocks.parquet", columns, units)


def write_tasks(folder: TrialFolder, outcome: TaskResults | None) -> None:
    """Write tasks.parquet, a row per task and shots, and items.parquet, one per question."""
    if outcome:
        items = outcome.items
        cells = pa.Table.from_pylist([plain(cell) for cell in outcome.cells], schema=CELLS)
    else:  # `empty_table` would import pandas, see `results.formats.column`
        items, cells = (pa.Table.from_batches([], schema=schema) for schema in (ITEMS, CELLS))
    write_table(folder.path / "items.parquet", items)
    write_table(folder.path / "tasks.parquet", cells)
