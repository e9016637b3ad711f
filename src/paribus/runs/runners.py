"""Which runner does the tasks of a trainer, and the one for all trainers that return records."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from paribus.analysis import boundaries
from paribus.decision import own_rule, require_comparison, require_reachable
from paribus.errors import ParibusError
from paribus.numbers import some
from paribus.results import ResultsFolder, extended, package_versions, read_registration
from paribus.results.formats import write_json
from paribus.results.opened_texts import note, open_in_ledger, parts_of, require_fresh
from paribus.results.record_format import TRAINER, records_of
from paribus.results.registration import registration, settle
from paribus.results.store import LEDGER
from paribus.runs.advance import go_through, study_of, task_of
from paribus.runs.declared import (
    declared_by,
    find_trainer,
    metrics_of,
    registered_trainer,
    text_of,
)
from paribus.runs.queue import Task
from paribus.runs.records import trainer_records, write_record
from paribus.study import Study
from paribus.study.trainer import (
    BUILT_IN,
    COMMAND,
    RUNS,
    STACKED,
    Trial,
)

if TYPE_CHECKING:
    from paribus.runs.worker import Context, Runner

MOST_NAMED = 3  # files that an error names


def runner_of(trainer: str) -> Runner:
    """Return what runs the studies of a trainer."""
    if trainer == STACKED:
        return resolve_name(BUILT_IN[STACKED].trainer)()
    return TrainerRunner()


def software(study: Study) -> dict[str, Any]:
    """Return what must be the same on every machine of a run."""
    records = records_of(study)
    own = {"the source of paribus": str(records.code())[:12], "Python": platform.python_version()}
    return own | package_versions(records.packages)


class TrainerRunner:
    """Runs studies whose trainer returns records: a program, finished runs, a user's trainer."""

    later: tuple[str, ...] = ()
    forks = True

    def warm_up(self) -> None:
        """Import what a program's trial needs."""
        importlib.import_module("paribus.trainers.command.trainer")

    def slots(self, context: Context) -> int:
        """Return one, or as many as have GPUs of their own if the study says how many they take."""
        study = study_of(context.order)
        n_gpus = study.program.gpus if study.trainer == COMMAND else None
        if not n_gpus:
            return 1
        from paribus.programs.machine import gpus

        return max(1, len(gpus()) // n_gpus)

    def advance(self, context: Context) -> None:
        """Go through the stages of the study."""
        study, folder = study_of(context.order), ResultsFolder(Path(context.order.results))
        stages = TrainerStages(study, find_trainer(study, folder, context), context)
        go_through(stages, study, folder, context.say)

    def execute(self, task: Task, context: Context) -> None:
        """Run the trial of a task."""
        folder = ResultsFolder(Path(task.home))
        study = study_of(context.order, folder.path)
        trainer = find_trainer(study, ResultsFolder(Path(context.order.results)), context)
        stages = TrainerStages(study, trainer, context)
        stages.require_registered(study, folder)
        stages.run_trials(study, folder, task.trials)


class TrainerStages:
    """The stages of a study whose trainer returns records."""

    def __init__(self, study: Study, trainer: Any, context: Context | None = None) -> None:
        self.context, self.trainer = context, trainer
        self.declaration = declared_by(study, trainer)

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Return the study with a second stage that its folder has registered."""
        study = extended(study, folder)
        folder.require_same(study)
        if study.trainer != RUNS:  # judge has its own words
            require_comparison(study)
        require_fresh(study, {TRAINER: text_of(self.declaration)}, folder)
        return study

    def register(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> Study:
        """Register what the trainer declares."""
        if not folder.exists:
            require_reachable(study)
        self._require_unchanged(study, folder)
        declaration = declared_by(study, self.trainer) if is_tuning else self.declaration
        known = metrics_of(declaration)
        metrics = {name: known[name] for name in study.metrics}
        data: dict[str, Any] = {arm: {} for arm in study.arms}
        wanted = registration(study, data, "", metrics, {}, own_rule(study), boundaries(study))
        wanted[TRAINER] = registered_trainer(study, declaration)
        known_runs = partial(self.trainer.there, study) if study.trainer == RUNS else dict
        settle(folder, study, wanted, there=known_runs)
        return study

    def begin(self, study: Study, folder: ResultsFolder) -> None:
        """Tell the ledger that scores will be seen, and keep what it says of their text."""
        if self.context is not None:
            note_executor(folder, self.context)
        note(folder)
        registered = read_registration(folder) or {}
        if parts_of(study, registered, "test") and not folder.has_sealed(LEDGER):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            folder.seal(LEDGER, open_in_ledger(folder, study, now))
        note(folder, is_begun=True)

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Return a task for each trial, in the order of seeds."""
        place = {trial: k for k, trial in enumerate(study.trials)}
        tasks = []
        for arm, seed in todo:
            names = (f"{place[arm, seed]:05d}", arm, f"seed-{seed}")
            arguments = {"trials": [[arm, seed]]}
            tasks.append(task_of(folder, names, "train", f"on {arm}/seed-{seed}", arguments))
        return tasks

    def after_trials(self, study: Study, folder: ResultsFolder) -> None:
        """Nothing follows."""

    def finish(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Nothing is left to do."""

    def run_trials(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Let the trainer run the trials that are not finished, and seal each."""
        todo = [trial for trial in trials if not folder.trial(*trial).is_finished]
        trainer = self.trainer
        if hasattr(trainer, "into"):  # it writes more than its records
            trainer = trainer.into(folder)
        for trial, record in trainer_records(study, trainer, todo):
            write_record(study, folder.trial(*trial), self.declaration, record)
            if self.context is not None:
                self.context.report("finished", trials=[trial])
            if hasattr(trainer, "ask_about_seeds"):
                trainer.ask_about_seeds(study, folder, trial[0])
            if hasattr(trainer, "tidy"):
                trainer.tidy(trial)

    def require_registered(self, study: Study, folder: ResultsFolder) -> None:
        """Raise ParibusError if the trainer is not the one that was registered."""
        self._require_unchanged(study, folder)
        registered = (read_registration(folder) or {}).get(TRAINER, {})
        here = json.loads(json.dumps(registered_trainer(study, self.declaration)))
        keys = [name for name in here if here[name] != registered.get(name, here[name])]
        if keys:
            raise ParibusError(
                f"trainer '{study.trainer}' is not the one that was registered: its {keys[0]} "
                "changed since; restore it, or choose another folder with --results"
            )

    def _require_unchanged(self, study: Study, folder: ResultsFolder) -> None:
        """Raise ParibusError if a program of the study is not the one that was registered."""
        registered = (read_registration(folder) or {}).get(TRAINER)
        if not registered or study.trainer != COMMAND:
            return
        if changed := self.trainer.changed_files(study, registered.get("program", {})):
            raise ParibusError(
                f"{some(changed, MOST_NAMED)} changed since the study began; restore it, or give "
                "the arm `ref`"
            )


def note_executor(folder: ResultsFolder, context: Context) -> None:
    """Record what starts the workers that train from here on; it counts in no digest."""
    write_json(folder.path / "backend.json", context.order.executor)
