"""The tasks of a study: made once, before its registration, and asked of every trial."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.engine.data import Dataset
from paribus.engine.setting import Data, Setting
from paribus.engine.tasks import (
    STANDARD_FILE,
    Pinned,
    WrittenSuite,
    build_suite,
    own_tasks,
    read_standard,
    read_suite,
    registered_tasks,
    write_suite,
)
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, task_names
from paribus.results.formats import write_json
from paribus.study import Study

if TYPE_CHECKING:  # whoever registers a study needs no PyTorch
    import torch

    from paribus.engine.evaluation.harness.outcome import TaskResults

FOLDER = "tasks"
DRAFT = ".tasks"


@contextlib.contextmanager
def drafted_tasks(
    study: Study, folder: ResultsFolder, datasets: Mapping[Data, Dataset]
) -> Iterator[dict[str, Any]]:
    """Yield what is registered of the study's tasks, which are made unless they exist.

    New tasks are a hidden draft, which is removed afterwards unless `adopt_suite` was called: a run
    that its registration refuses leaves nothing. Raises ParibusError if a task cannot be made, its
    data cannot be loaded, or existing tasks are of another text.
    """
    if suite_folder(study, folder) is None:
        yield {}
        return
    tasks, draft, place = study.tasks, folder.path / DRAFT, folder.path / FOLDER
    has_suite = tasks.names != ()
    try:
        if not (place / ("suite.json" if has_suite else STANDARD_FILE)).is_file():
            place = draft
            shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
            described = {}
            if tasks.standard:  # before anything else: their data may not be available
                from paribus.engine.evaluation.harness.standard import describe_standard

                described = describe_standard(
                    tasks.standard,
                    shots=tasks.shots,
                    n_items=tasks.standard_items,
                    data_folder=_standard_data(study),
                )
            if has_suite:
                make_suite(study, datasets, draft)
            if described:
                write_json(draft / STANDARD_FILE, described)
        elif has_suite:
            origin = read_suite(place).origin
            same = {"seed": tasks.seed, "window": _window(study)}
            same["data"] = datasets[study.data].digests
            if any(origin.get(key) != value for key, value in same.items()):
                raise ParibusError(
                    f"{place} was made from another text, seed or window; choose another folder "
                    "with --results",
                    code="different",
                )
        registered = registered_tasks(place, tasks)
        names = task_names(registered)
        if duplicates := [name for name in names if names.count(name) > 1]:
            raise ParibusError(
                f"tasks.own and tasks.standard both have a task '{duplicates[0]}'; give your own "
                "another name"
            )
        yield registered
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def adopt_suite(folder: ResultsFolder) -> None:
    """Make the draft, if there is one, the suite of the study."""
    with contextlib.suppress(FileNotFoundError):
        (folder.path / DRAFT).rename(folder.path / FOLDER)


def make_suite(study: Study, datasets: Mapping[Data, Dataset], place: Path) -> WrittenSuite:
    """Draw questions from the text of `study` and write them to the folder `place`.

    All arms are asked the same questions, so each must fit the window of every arm, in that arm's
    tokens. There are as many as the text allows, in case more are asked later.
    """
    readers = [
        (datasets[setting.data].tokenizer.encode, setting.data.seq_len)
        for setting in map(study.setting, study.arms)
        if setting.data != study.data
    ]
    suite = build_suite(
        datasets[study.data],
        study.tasks.seed,
        _window(study),
        least=study.tasks.items,
        own=own_tasks(study.tasks.own, study.folder),
        readers=readers,
    )
    return write_suite(place, suite)


def suite_folder(study: Study, folder: ResultsFolder) -> Path | None:
    """Return the folder of the study's tasks; None if it has none."""
    has_tasks = study.tasks.names != () or study.tasks.standard
    return folder.path / FOLDER if has_tasks else None


def run_tasks(
    study: Study, model: torch.nn.Module, dataset: Dataset, setting: Setting, folder: Path
) -> TaskResults | None:
    """Let a model answer the registered tasks in `folder`; return None if none of them fits.

    Raises ParibusError if a standard task is not the one that was registered.
    """
    from paribus.engine.evaluation.harness.outcome import together
    from paribus.engine.evaluation.harness.standard import evaluate_standard
    from paribus.engine.evaluation.harness.task_runs import evaluate_tasks

    tasks = study.tasks
    asked, own = (model, dataset.tokenizer, setting.data.seq_len), None
    if tasks.names != ():
        suite = read_suite(folder)
        offered = suite.find(tasks.names).values()
        if any(n in task.shots for task in offered for n in tasks.shots):
            own = evaluate_tasks(
                *asked,
                suite,
                tasks=tasks.names,
                shots=tasks.shots,
                n_items=tasks.items,
                unknown=tasks.unknown,
            )
    if tasks.standard:
        registered = read_standard(folder)
        standard = evaluate_standard(
            *asked,
            tasks=list(registered),
            shots=tasks.shots,
            n_items=tasks.standard_items,
            data_folder=_standard_data(study),
        )
        for name, pins in standard.pins["tasks"].items():
            known = registered[name]
            differing = [key for key in Pinned.model_fields if pins[key] != getattr(known, key)]
            if differing:
                raise ParibusError(
                    f"task '{name}' is not the one that was registered: its "
                    f"{', '.join(differing)} differ; every trial needs the same data set and the "
                    "same lm_eval"
                )
        return together(own, standard) if own else standard
    return own


def _standard_data(study: Study) -> Path | None:
    """Return the folder with copies of the standard tasks' data; None to use the hub."""
    stated = study.tasks.standard_data
    return None if stated is None else (study.folder / stated).resolve()


def _window(study: Study) -> int:
    """Return the longest text that every arm can read."""
    return min(study.setting(arm).data.seq_len for arm in study.arms)
