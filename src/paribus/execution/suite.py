"""The task suite of a study: made once, before its registration, and the same for every trial."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from paribus.data import Dataset
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.study import Data, Study
from paribus.tasks import WrittenSuite, build_suite, own_tasks, read_suite, write_suite

FOLDER = "tasks"
DRAFT = ".tasks"


@contextlib.contextmanager
def drafted_suite(
    study: Study, folder: ResultsFolder, datasets: Mapping[Data, Dataset]
) -> Iterator[WrittenSuite | None]:
    """The suite of `study`, new or as an earlier run wrote it; None where the study has no tasks.

    A new one is a hidden draft that is gone afterwards, unless `adopt_suite` was called: nothing is
    left of a run that its registration refuses. Raises ParibusError where a task that the study
    names cannot be made, or the suite that is there is of other text.
    """
    if study.tasks.names == ():
        yield None
        return
    draft, there = folder.path / DRAFT, folder.path / FOLDER
    try:
        if (there / "suite.json").is_file():
            suite = read_suite(there)
            found = suite.origin["seed"], suite.origin["window"], suite.origin["data"]
            if found != (study.tasks.seed, _window(study), datasets[study.data].digests):
                raise ParibusError(
                    f"{there} was made from another text, seed or window; choose another folder "
                    "with --results"
                )
        else:
            shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
            suite = make_suite(study, datasets, draft)
        suite.find(study.tasks.names)
        yield suite
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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
    """What every arm can read."""
    return min(study.setting(arm).data.seq_len for arm in study.arms)


def adopt_suite(folder: ResultsFolder) -> None:
    """Make the draft, if there is one, the suite of the study."""
    with contextlib.suppress(FileNotFoundError):
        (folder.path / DRAFT).rename(folder.path / FOLDER)


def suite_folder(study: Study, folder: ResultsFolder) -> Path | None:
    """Where the suite of a study under way is; None where it has no tasks."""
    return None if study.tasks.names == () else folder.path / FOLDER
