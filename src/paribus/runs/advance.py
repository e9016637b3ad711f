"""What comes next in a run, as a function of its results folder.

Tuning trials, the choice, the verdict's trials up to the next look, the look, and what a study ends
with: each stage uses what exists already and raises `Missing` for the rest. So a run can be killed
anywhere, and any worker finds out how it goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paribus.analysis import (
    Table,
    look_in_words,
    next_look,
    tuning_record,
    why_not_these_looks,
)
from paribus.analysis.tuning import differing_from, values_of
from paribus.errors import ParibusError
from paribus.ledger import unrecorded
from paribus.results import (
    ResultsFolder,
    append_look,
    load_results,
    looks_left,
    needed_trials,
    read_looks,
)
from paribus.results.opened_texts import note
from paribus.results.registration import FILE
from paribus.results.store import TUNING
from paribus.runs.queue import Missing, Order, Task
from paribus.study import Study, parse_study, read_study, tuning_study, with_choice
from paribus.study.trainer import Trial
from paribus.study.tuning_study import FOLDER
from paribus.untrusted_io import RECORD_BYTES, read_text

if TYPE_CHECKING:
    from paribus.runs.worker import Context, Runner

Say = Callable[[str], object]


class Stages(Protocol):
    """What a trainer does in each stage of a run. Each method may raise Missing."""

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


def go_through(stages: Stages, study: Study, folder: ResultsFolder, say: Say) -> None:
    """Go through all stages of a study. Raises Missing if tasks have to be done first."""
    study = stages.open(study, folder)
    if study.tuning is not None:
        if not (folder.path / FILE).is_file():
            study = stages.register(study, folder)
        stages.begin(study, folder)
        study = _tune(stages, study, folder, say)
    _train(stages, study, folder, say)


def _train(
    stages: Stages, study: Study, folder: ResultsFolder, say: Say, *, is_tuning: bool = False
) -> None:
    """Train missing trials, and take looks."""
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


def _tune(stages: Stages, study: Study, folder: ResultsFolder, say: Say) -> Study:
    """Train missing tuning trials, in a folder of their own; return the study as tuned.

    They are a study like any other (`paribus.study.tuning_study`). A choice that was made already
    is made again, and compared with the sealed one.
    """
    sealed, home, wanted = folder.read_tuning(), folder.tuning_trials, tuning_study(study)
    unfinished = [trial for trial in wanted.trials if not home.trial(*trial).is_finished]
    if unfinished and sealed:
        raise ParibusError(
            f"tuning trial {home.trial(*unfinished[0]).label} is no longer in {home.path}, and "
            f"{TUNING} was made of it: restore it, or choose another folder with --results"
        )
    if unfinished:
        home.require_same(wanted)
        _train(stages, wanted, home, say, is_tuning=True)
    record = tuning_record(study, load_results(home.path))
    if not sealed:
        folder.seal(TUNING, record)
    elif differing_from(sealed, record):
        raise ParibusError(
            f"{folder.path / TUNING} is not what the tuning trials give; `paribus verify` "
            "says what was changed: restore it"
        )
    tuned = with_choice(study, values_of(record))
    folder.create(tuned)
    return tuned


def take_look(study: Study, folder: ResultsFolder, say: Say) -> bool:
    """Take the next look of `study`, whose trials up to it are finished; return whether it had one.

    Raises ParibusError if earlier looks are not what the trials give.
    """
    if not looks_left(study, read_looks(folder)):
        return False
    table = Table.of(load_results(folder.path))
    if problem := why_not_these_looks(table):
        raise ParibusError(
            f"{folder.path}: {problem}; `paribus verify` says what was changed: restore it"
        )
    entry = next_look(table)
    if entry is None:
        return False
    append_look(folder, entry | {"taken_at": datetime.now(UTC).isoformat(timespec="seconds")})
    note(folder)
    say(look_in_words(study, entry))
    return True


def task_id(folder: ResultsFolder, *parts: object) -> str:
    """Return the name of a task: its folder of tuning trials, if any, then `parts`."""
    home = folder.path.absolute()
    names = home.parts[home.parts.index(FOLDER) :] if FOLDER in home.parts else ()
    return ".".join([*names, *map(str, parts)])


def task_of(
    folder: ResultsFolder, parts: Sequence[str], kind: str, doing: str, arguments: dict[str, Any]
) -> Task:
    """Return a task on trials of `folder`; its name is made of `parts`."""
    return Task(task_id(folder, *parts), kind, doing, str(folder.path.absolute()), arguments)
