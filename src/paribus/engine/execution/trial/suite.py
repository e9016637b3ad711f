"""The tasks of a study: made or described once, before its registration, and then the same."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paribus.engine.data import Dataset
from paribus.engine.setting import Data
from paribus.engine.tasks import (
    STANDARD_FILE,
    WrittenSuite,
    build_suite,
    own_tasks,
    read_suite,
    registered_tasks,
    write_standard,
    write_suite,
)
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, task_names
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study

FOLDER = "tasks"
DRAFT = ".tasks"
ANSWERED = ("tasks.parquet", "items.parquet")  # later answers, sealed by about.json beside them


@contextlib.contextmanager
def drafted_tasks(
    study: Study, folder: ResultsFolder, datasets: Mapping[Data, Dataset]
) -> Iterator[dict[str, Any]]:
    """Return what is registered of the tasks of `study`, new or as an earlier run wrote them.

    What is new is a hidden draft that is gone afterwards, unless `adopt_suite` was called: nothing
    is left of a run that its registration refuses. Raises ParibusError where a task that the study
    names cannot be made or its data cannot be had, or the suite that is there is of other text.
    """
    asked = study.tasks
    if not _asks(study):
        yield {}
        return
    draft, there = folder.path / DRAFT, folder.path / FOLDER
    try:
        if (there / ("suite.json" if asked.names != () else STANDARD_FILE)).is_file():
            at = there
            if asked.names != ():
                _require_origin(study, datasets, there)
        else:
            at = draft
            shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
            described = _described(study)
            if asked.names != ():
                make_suite(study, datasets, draft)
            if described:
                write_standard(draft, described)
        registered = registered_tasks(at, asked)
        _require_once(task_names(registered))
        yield registered
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _asks(study: Study) -> bool:
    return study.tasks.names != () or bool(study.tasks.standard)


def _require_origin(study: Study, datasets: Mapping[Data, Dataset], there: Path) -> None:
    """Raise ParibusError where the suite is not of this study's text, seed and window."""
    origin = read_suite(there).origin
    found = origin["seed"], origin["window"], origin["data"]
    if found != (study.tasks.seed, _window(study), datasets[study.data].digests):
        raise ParibusError(
            f"{there} was made from another text, seed or window; choose another folder "
            "with --results"
        )


def _require_once(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ParibusError(
            f"tasks.own and tasks.standard both have a task '{twice}'; give your own another name"
        )


def _described(study: Study) -> dict[str, Any]:
    """Return the standard tasks that the study asks, by version and digest of their data; none are
    asked.

    Raises ParibusError where their data cannot be had, before anything is trained.
    """
    asked = study.tasks
    if not asked.standard:
        return {}
    from paribus.engine.evaluation.harness import describe_standard

    return describe_standard(
        asked.standard,
        shots=asked.shots,
        n_items=asked.standard_items,
        data_folder=standard_data(study),
    )


def standard_data(study: Study) -> Path | None:
    """Return where copies of the standard tasks' data sets lie; None where the hub has them."""
    stated = study.tasks.standard_data
    return None if stated is None else (study.folder / stated).resolve()


def make_suite(study: Study, datasets: Mapping[Data, Dataset], at: Path) -> WrittenSuite:
    """Draw the questions of `study` and write them to the folder `at`.

    They are texts, and all arms are asked the same ones: each must fit into the window of every
    arm, in that arm's tokens.

    There are as many as the text has, for whoever wants more later, and at least those that are
    asked.
    """
    window, asked = _window(study), study.tasks.items
    own = own_tasks(study.tasks.own, study.folder)
    readers = [
        (datasets[setting.data].tokenizer.encode, setting.data.seq_len)
        for setting in map(study.setting, study.arms)
        if setting.data != study.data
    ]
    suite = build_suite(
        datasets[study.data], study.tasks.seed, window, least=asked, own=own, readers=readers
    )
    return write_suite(at, suite)


def _window(study: Study) -> int:
    """Return what every arm can read."""
    return min(study.setting(arm).data.seq_len for arm in study.arms)


def adopt_suite(folder: ResultsFolder) -> None:
    """Make the draft, if there is one, the suite of the study."""
    with contextlib.suppress(FileNotFoundError):
        (folder.path / DRAFT).rename(folder.path / FOLDER)


def suite_folder(study: Study, folder: ResultsFolder) -> Path | None:
    """Return where the suite of a study under way is; None where it has no tasks."""
    return folder.path / FOLDER if _asks(study) else None


def answers_folder(out: Path, arm: str, seed: int) -> TrialFolder:
    """Return where one trial's answers to more questions are (see `evaluate`)."""
    return TrialFolder(out / "trials" / arm / f"seed-{seed}", arm, seed)
