"""The tasks of a study: made once before its registration, and run on every trial."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paribus.engine.data import Dataset
from paribus.engine.setting import Data
from paribus.engine.tasks import (
    STANDARD_FILE,
    own_tasks,
    read_suite,
    registered_tasks,
    write_suite,
)
from paribus.errors import ParibusError
from paribus.files import whole_folder
from paribus.results import ResultsFolder
from paribus.results.formats import write_json
from paribus.study import Study

FOLDER = "tasks"


@contextlib.contextmanager
def settled_tasks(
    study: Study, folder: ResultsFolder, datasets: Mapping[Data, Dataset]
) -> Iterator[dict[str, Any]]:
    """Yield the registered description of the study's tasks; make the tasks if they do not exist.

    New tasks are kept only if the registration, inside the context, succeeds. Raises ParibusError
    if a task cannot be made, its data cannot be loaded, or existing tasks were made from another
    text.
    """
    tasks, place = study.tasks, suite_folder(study, folder)
    if place is None:
        yield {}
        return
    if place.is_dir():
        if tasks.names != ():
            origin = read_suite(place).origin
            if (origin["seed"], origin["data"]) != (tasks.seed, datasets[study.data].digests):
                raise ParibusError(
                    f"{place} was made from another text or seed; choose another folder with "
                    "--results",
                    code="different",
                )
        yield registered_tasks(place, tasks)
        return
    with whole_folder(place) as new:
        if tasks.standard:  # before anything else: their data may not be available
            from paribus.engine.evaluation.harness.standard import describe_standard

            asked = (tasks.standard, tasks.shots, tasks.standard_items, standard_data(study))
            write_json(new / STANDARD_FILE, describe_standard(*asked))
        if tasks.names != ():
            make_suite(study, datasets, new)
        registered = registered_tasks(new, tasks)
        names = [*registered.get("names", ()), *registered.get("standard", {})]
        if duplicates := [name for name in names if names.count(name) > 1]:
            raise ParibusError(
                f"tasks.own and tasks.standard both have a task '{duplicates[0]}'; rename "
                "your own task"
            )
        yield registered


def make_suite(study: Study, datasets: Mapping[Data, Dataset], place: Path) -> None:
    """Draw questions from the text of `study` and write them to the folder `place`.

    All arms answer the same questions, so each question must fit the window of every arm. There are
    as many as the text allows, because `paribus evaluate` may use more later.
    """
    readers = [
        (datasets[setting.data].tokenizer.encode, setting.data.seq_len)
        for setting in map(study.setting, study.arms)
        if setting.data != study.data
    ]
    write_suite(
        place,
        datasets[study.data],
        study.tasks.seed,
        min(study.setting(arm).data.seq_len for arm in study.arms),
        n_least=study.tasks.items,
        own=own_tasks(study.tasks.own, study.folder),
        readers=readers,
    )


def suite_folder(study: Study, folder: ResultsFolder) -> Path | None:
    """Return the folder of the study's tasks; None if it has none."""
    has_tasks = study.tasks.names != () or study.tasks.standard
    return folder.path / FOLDER if has_tasks else None


def standard_data(study: Study) -> Path | None:
    """Return the folder with copies of the standard tasks' data; None to use the hub."""
    stated = study.tasks.standard_data
    return None if stated is None else (study.folder / stated).resolve()
