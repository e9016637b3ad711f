"""What comes next in a run, as a function of its results folder.

Tuning trials, the choice, the verdict's trials up to the next look, the look, and what a study ends
with: each stage finds what is there already and raises `Missing` for what is not. So a run can be
killed anywhere, and any worker finds out how it goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paribus.ledger import unrecorded
from paribus.results import ResultsFolder, needed_trials, read_looks
from paribus.results.registration import FILE
from paribus.runs.looks import take_look
from paribus.runs.queue import Missing, Order, Task
from paribus.runs.tuning import tune
from paribus.study import Study, parse_study, read_study
from paribus.study.trainer import Trial
from paribus.study.tuning_study import FOLDER as TUNING
from paribus.untrusted_io import RECORD_BYTES, read_text

if TYPE_CHECKING:
    from paribus.runs.worker import Context, Runner


class Stages(Protocol):
    """What a trainer does in each stage of a run. Each may raise Missing."""

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Return the study as it is registered; raises ParibusError if it cannot be run there."""
        ...

    def register(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> Study:
        """Register a study, or its tuning trials; return it with its settled precision."""
        ...

    def begin(self, study: Study, folder: ResultsFolder) -> None:
        """Tell the ledger that scores will be seen."""
        ...

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Return the tasks that train these trials."""
        ...

    def after_trials(self, study: Study, folder: ResultsFolder) -> None:
        """Do what follows when the trials up to a look are finished."""
        ...

    def finish(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Do what the study ends with: the sealed test text, timing, a description of the text."""
        ...


def advance(context: Context, runner: Runner) -> None:
    """Put the tasks of the next stage into the queue, or note that nothing is left."""
    queue, order = context.queue, context.order
    recorded = contextlib.nullcontext() if order.settings.get("recorded", True) else unrecorded()
    try:
        with recorded:
            runner.advance(context)
    except Missing as missing:
        trains = next((task for task in missing.tasks if task.trials), None)
        if trains is not None:
            context.report("stage", home=trains.home)
        queue.put(missing.tasks)
        return
    queue.note_finished()


def study_of(order: Order, home: Path | None = None) -> Study:
    """Return the study of an order, or the one that a results folder `home` holds."""
    folder = Path(order.folder)
    if home is None:
        return parse_study(order.study, folder=folder)
    return read_study(read_text(home / "study.json", RECORD_BYTES), folder=folder, foreign=False)


def go_through(
    stages: Stages, study: Study, folder: ResultsFolder, say: Callable[[str], object]
) -> None:
    """Go through all stages of a study. Raises Missing where tasks have to be done first."""

    def train_tuning(tuning: Study, home: ResultsFolder) -> None:
        _train(stages, tuning, home, say, is_tuning=True)

    study = stages.open(study, folder)
    if study.tuning is not None:
        if not (folder.path / FILE).is_file():
            study = stages.register(study, folder)
        stages.begin(study, folder)
        study = tune(study, folder, train_tuning)
    _train(stages, study, folder, say)


def _train(
    stages: Stages,
    study: Study,
    folder: ResultsFolder,
    say: Callable[[str], object],
    *,
    is_tuning: bool = False,
) -> None:
    """Train what is missing, and take looks."""
    study = stages.register(study, folder, is_tuning=is_tuning)
    if not is_tuning:
        stages.begin(study, folder)
    while True:
        needed = needed_trials(study, read_looks(folder))
        todo = [trial for trial in needed if not folder.trial(*trial).is_finished]
        if todo:
            raise Missing(stages.tasks(study, folder, todo))
        stages.after_trials(study, folder)
        if not take_look(study, folder, say):
            break
    if not is_tuning:
        stages.finish(study, folder, needed)


def task_id(folder: ResultsFolder, *parts: object) -> str:
    """Return the name of a task: whether it is part of the tuning, then `parts`."""
    home = folder.path.absolute()
    names = [*home.parts[home.parts.index(TUNING) :]] if TUNING in home.parts else []
    return ".".join([*names, *map(str, parts)])


def task_of(
    folder: ResultsFolder, parts: Sequence[str], kind: str, doing: str, arguments: dict[str, Any]
) -> Task:
    """Return a task on trials of `folder`; its name is made of `parts`."""
    return Task(task_id(folder, *parts), kind, doing, str(folder.path.absolute()), arguments)
