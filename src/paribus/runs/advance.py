"""Stages of a run, determined from the contents of its results folder.

The stages are tuning trials, hyperparameter selection, main trials up to the next interim analysis,
the interim analysis, and the final steps. Each stage reuses existing results and raises `Missing`
for the rest. A run can therefore be killed at any time, and any worker can continue it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paribus import analysis
from paribus.analysis.tuning import values_of
from paribus.decision import own_rule
from paribus.ledger import unrecorded
from paribus.results import (
    ResultsFolder,
    append_look,
    load_results,
    looks_left,
    needed_trials,
    read_looks,
    registration,
    settle,
)
from paribus.results.opened_texts import note
from paribus.results.registration import FILE
from paribus.results.store import TUNING
from paribus.runs.queue import Context, Missing, Order, Task
from paribus.study import Study, parse_study, read_study, tuning_study, with_choice
from paribus.study.trainer import Trial
from paribus.study.tuning_study import FOLDER

Say = Callable[[str], None]


class Runner:
    """Base class of runners, each of which runs studies with one kind of trainer.

    All methods may raise ParibusError. Methods for stages may also raise Missing if other tasks
    must run first.
    """

    def __init__(self, context: Context | None) -> None:
        self.context: Any = context  # None where no worker is needed
        self.say: Say = context.say if context else logging.getLogger("paribus").info

    @staticmethod
    def forks() -> bool:
        """Return whether child processes may be forked."""
        return True

    @staticmethod
    def warm_up() -> None:
        """Import the modules that every child process needs."""

    def slots(self) -> int:
        """Return how many child processes a worker may run concurrently on this machine."""
        raise NotImplementedError

    def execute(self, task: Task) -> Any:
        """Run a task.

        Returns the result, or None if the task writes its results to the results folder.
        """
        raise NotImplementedError

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Return the study as registered, or raise ParibusError if it cannot run here."""
        raise NotImplementedError

    def register(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> Study:
        """Register a study or its tuning trials, and return the study with resolved precision."""
        raise NotImplementedError

    def settle(self, study: Study, folder: ResultsFolder, *content: Any, **more: Any) -> None:
        """Register a study, or check that it matches the existing registration.

        `content` is the data, device, metrics and tasks of `paribus.results.registration`.
        """
        wanted = registration(study, *content, own_rule=own_rule(study))
        settle(folder, study, wanted | more)

    def begin(self, study: Study, folder: ResultsFolder) -> None:
        """Record in the ledger that the study has begun."""
        note(folder, is_begun=True)

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Create the tasks that run the trials in `todo`."""
        raise NotImplementedError

    def after_trials(self, study: Study, folder: ResultsFolder) -> None:
        """Run the steps between a stage's trials and its interim analysis."""

    def finish(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Run the final steps, such as evaluation on the test split, timing and text statistics."""

    def go_through(self, study: Study, folder: ResultsFolder) -> None:
        """Run all stages of a study in order."""
        study = self.open(study, folder)
        if study.tuning is not None:
            if not (folder.path / FILE).is_file():
                study = self.register(study, folder)
            self.begin(study, folder)
            study = self._tune(study, folder)
        self._train(study, folder)

    def _train(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> None:
        """Run missing trials and due interim analyses."""
        study = self.register(study, folder, is_tuning=is_tuning)
        if not is_tuning:
            self.begin(study, folder)
        while True:
            needed = needed_trials(study, read_looks(folder))
            todo = [trial for trial in needed if not folder.trial(*trial).is_finished]
            if todo:
                raise Missing(self.tasks(study, folder, todo))
            self.after_trials(study, folder)
            if not take_look(study, folder, self.say):
                break
        if not is_tuning:
            self.finish(study, folder, needed)

    def _tune(self, study: Study, folder: ResultsFolder) -> Study:
        """Run missing tuning trials in a separate folder, and return the tuned study.

        Until hyperparameters are selected, the tuning trials run like any other study
        (`paribus.study.tuning_study`).
        """
        record = folder.read_sealed(TUNING)
        if not record:
            home, wanted = folder.tuning_trials, tuning_study(study)
            home.require_same(wanted)
            self._train(wanted, home, is_tuning=True)
            record = analysis.tuning_record(study, load_results(home.path))
            folder.seal(TUNING, record)
        tuned = with_choice(study, values_of(record))
        folder.create(tuned)
        return tuned

    def advance(self) -> None:
        """Queue the tasks of the next stage, or mark the run as finished if none are left."""
        queue, order = self.context.queue, self.context.order
        recorded = order.settings.get("recorded", True)
        try:
            with contextlib.nullcontext() if recorded else unrecorded():
                self.go_through(study_of(order), ResultsFolder(Path(order.results)))
        except Missing as missing:
            trains = next((task for task in missing.tasks if task.trials), None)
            if trains is not None:
                # Relative, so that `status` can follow a folder that was moved.
                self.context.report("stage", home=os.path.relpath(trains.home, order.results))
            queue.put(missing.tasks)
            return
        queue.note_finished()


def study_of(order: Order, home: Path | None = None) -> Study:
    """Load a run's study from `order`, or from the results folder `home` if given."""
    folder = Path(order.folder)
    if home is None:
        return parse_study(order.study, folder=folder)
    return read_study(home / "study.json", folder=folder, foreign=False)


def take_look(study: Study, folder: ResultsFolder, say: Say) -> bool:
    """Run the next interim analysis if its trials are finished, and return whether it ran."""
    if not looks_left(study, read_looks(folder)):
        return False
    entry = analysis.next_look(analysis.Table.from_results(load_results(folder.path)))
    if entry is None:
        return False
    append_look(folder, entry | {"taken_at": datetime.now(UTC).isoformat(timespec="seconds")})
    note(folder)
    say(analysis.look_text(study, entry))
    return True


def task_of(folder: ResultsFolder, kind: str, name: str, doing: str, **arguments: Any) -> Task:
    """Create a task for the trials in a results folder.

    The task's id is `name`, prefixed with the folder of tuning trials, if any.
    """
    home = folder.path.absolute()
    names = home.parts[home.parts.index(FOLDER) :] if FOLDER in home.parts else ()
    return Task(".".join([*names, name]), kind, doing, str(home), arguments)


def train_task(folder: ResultsFolder, k: int, trials: Sequence[Trial]) -> Task:
    """Create the task that trains `trials` together, with its 0-based position `k` in the study."""
    labels = [f"{arm}/seed-{seed}" for arm, seed in trials]
    name, doing = f"{k:05d}.{labels[0].replace('/', '.')}", f"on {', '.join(labels)}"
    return task_of(folder, "train", name, doing, trials=[list(trial) for trial in trials])
