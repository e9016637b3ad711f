"""Evaluation of finished trials on additional tasks, with any number of few-shot examples.

The results do not affect the verdict. Each request has a folder `evaluations/<request digest>/`,
with one subfolder per trial.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from paribus.digests import digest
from paribus.engine.execution.start import FOLDER, make_suite, read_data
from paribus.engine.tasks import SHOTS, read_suite
from paribus.errors import ParibusError, require_positive
from paribus.results import ResultsFolder, load_results
from paribus.results.formats import write_json
from paribus.results.read import trial_rows
from paribus.runs.advance import task_of
from paribus.runs.executors import Backend
from paribus.runs.run import Device, ask
from paribus.study.protocol import require_stacked

ANSWERS = ("tasks.parquet", "items.parquet", "about.json")  # files sealed in a trial's manifest


@dataclass(frozen=True)
class Answers:
    """Results of finished trials on additional tasks.

    Attributes:
        path: folder with one subfolder of results per trial.
        tasks: table with one row per arm, seed, task and number of shots, and columns such as
            chance, items, correct and accuracy.
    """

    path: Path
    tasks: pa.Table


def evaluate(
    results: str | os.PathLike[str],
    *,
    tasks: Sequence[str] | None = None,
    shots: Sequence[int] | None = None,
    standard: bool = False,
    data: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    device: Device = "auto",
    trust: bool = False,
    backend: str | Backend = "local",
) -> Answers:
    """Evaluate all finished trials on additional tasks, with the LM Evaluation Harness.

    Args:
        results: results folder.
        tasks: task names; None means all.
        shots: numbers of few-shot examples in the prompt; None means 0, 1 and 3, or 0 for standard
            tasks.
        standard: whether to use the harness's tasks instead of those generated from the validation
            text.
        data: folder with copies of the standard tasks' data sets (see
            `paribus.engine.evaluation.harness.standard`); None downloads them from the hub.
        workers, device, backend: as for `run`.
        trust: whether to run custom code named in the results folder.

    Raises ParibusError for an unknown task, if no number of shots fits in the window, if no trial
    is finished, or if the folder names custom code that is not trusted.
    """
    loaded = load_results(results, trust=trust)
    study, folder = loaded.study, ResultsFolder(loaded.path)
    require_stacked(study, "evaluating additional tasks")
    if not loaded.finished:
        raise ParibusError(
            f"{loaded.path} has no finished trial; run the study first", code="unfinished"
        )
    require_positive(workers=workers)
    request: dict[str, Any] = {  # its digest names the folder for the answers
        "standard": standard,
        "tasks": list(tasks) if tasks is not None else None,
        "shots": list(shots or ((0,) if standard else SHOTS)),
        "data": os.fspath(Path(data).absolute()) if data else None,
    }
    with folder.lock():
        if not standard:
            place = folder.path / FOLDER
            if not (place / "suite.json").is_file():  # the study has no tasks
                make_suite(study, read_data(study), place)
            suite = read_suite(place)
            registered = loaded.registered.get("tasks", {})
            if registered.get("suite_sha256", suite.digest) != suite.digest:
                raise ParibusError(
                    f"{place} differs from the registered task suite; restore it", code="changed"
                )
            suite.find(tasks)  # fails for an unknown name before anything starts
            request["suite_sha256"] = suite.digest
        out = folder.path / "evaluations" / digest(request)[:12]
        answers = [
            replace(trial, path=out / "trials" / trial.arm / f"seed-{trial.seed}")
            for trial in loaded.finished
        ]
        todo = []
        for answer in answers:
            if not answer.is_finished:
                arguments = {"arm": answer.arm, "seed": answer.seed, "request": request}
                arguments["out"] = str(answer.path.absolute())
                name, doing = answer.label.replace("/", "."), f"on {answer.label}"
                todo.append(task_of(folder, "answer", name, doing, **arguments))
        if todo:
            ask(study, loaded.path, todo, workers=workers, device=device, backend=backend)
        write_json(out / "request.json", request)
        for answer in answers:
            answer.verify(ANSWERS)
        tables = [trial_rows(a.arm, a.seed, a.read_columns("tasks.parquet")) for a in answers]
        return Answers(out, pa.concat_tables(tables))
