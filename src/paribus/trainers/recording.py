"""Finished runs of other programs, recorded as the trials of a study."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, extended, judged_files, load_results
from paribus.results.registration import read_registration
from paribus.results.store import RUNS
from paribus.runs.queue import Missing
from paribus.runs.records import find_trainer
from paribus.runs.run import results_folder
from paribus.runs.runners import TrainerRunner
from paribus.study import Study


def judge_runs(
    study: Study, results: str | os.PathLike[str] | None = None, **options: Any
) -> Results:
    """Read and record the finished runs that a study names; no worker is started.

    `options` are those of `paribus.trainers.runs.Runs`. Raises ParibusError on bad input.
    """
    folder = results_folder(study, results)
    folder.require_home()
    trainer: Any = find_trainer(study, folder, **options)
    with folder.lock():
        runner = TrainerRunner(None, trainer)
        earlier = read_registration(folder)
        while True:
            try:
                runner.go_through(study, folder)
                break
            except Missing as missing:
                trials = [trial for task in missing.tasks for trial in task.trials]
                home = ResultsFolder(Path(missing.tasks[0].home))
                runner.run_trials(extended(study, folder), home, trials)
        _record_files(trainer, folder, earlier)
    return load_results(folder.path)


def _record_files(trainer: Any, folder: ResultsFolder, earlier: dict[str, Any] | None) -> None:
    """Record what became of the files that were read; `earlier` is the registration before."""
    outcome = trainer.about(earlier)
    if outcome is not None:
        if before := folder.read_runs():  # of a first stage
            outcome = outcome.model_copy(
                update={"exploratory": before.exploratory or outcome.exploratory}
            )
        folder.seal(RUNS, outcome.model_dump(mode="json"))
        return
    if changed := judged_files.changed(folder):
        raise ParibusError(
            f"{changed}; restore what was judged, or judge what there is now into another folder "
            "with --results"
        )
    record = folder.read_runs()
    if trainer.reading is None or record is None or not record.sha256:
        return
    contents = set(record.sha256.values())
    current = judged_files.digests(trainer.reading.paths, folder.path)
    if unknown := [name for name, digest in current.items() if digest not in contents]:
        raise ParibusError(
            f"{os.path.relpath(folder.path / unknown[0])} is not among the files that "
            f"{folder.path} is the verdict on; judge it into another folder with --results"
        )
