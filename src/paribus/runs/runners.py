"""Which runner does the tasks of a trainer, and the one for all trainers that return records."""

from __future__ import annotations

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
    Declaration,
    Trainer,
    Trial,
)

if TYPE_CHECKING:
    from paribus.runs.worker import Context, Runner

EXECUTOR = "backend.json"
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

    preload: tuple[str, ...] = ("paribus.trainers.command.trainer",)
    later: tuple[str, ...] = ()
    forks = True

    def warm_up(self) -> None:
        """Import what a program's trial needs."""
        import importlib

        for name in self.preload:
            importlib.import_module(name)

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
        trainer = find_trainer(study, folder, context)
        stages = TrainerStages(context, trainer, declared_by(study, trainer))
        go_through(stages, study, folder, context.say)

    def execute(self, task: Task, context: Context) -> None:
        """Run the trial of a task."""
        folder = ResultsFolder(Path(task.home))
        study = study_of(context.order, folder.path)
        trainer = find_trainer(study, ResultsFolder(Path(context.order.results)), context)
        declaration = declared_by(study, trainer)
        _require_registered(study, folder, trainer, declaration)
        run_trials(study, folder, trainer, declaration, task.trials, context)


def run_trials(
    study: Study,
    folder: ResultsFolder,
    trainer: Trainer,
    declaration: Declaration,
    trials: Sequence[Trial],
    context: Context | None = None,
) -> None:
    """Let a trainer run the trials that are not finished, and seal each."""
    todo = [trial for trial in trials if not folder.trial(*trial).is_finished]
    if hasattr(trainer, "into"):  # it writes more than its records
        trainer = trainer.into(folder)  # type: ignore[attr-defined]
    if not todo:
        return
    for trial, record in trainer_records(study, trainer, todo):
        write_record(study, folder.trial(*trial), declaration, record)
        if context is not None:
            context.report("finished", trials=[trial])
        if hasattr(trainer, "ask_about_seeds"):
            trainer.ask_about_seeds(study, folder, trial[0])  # type: ignore[attr-defined]
        if hasattr(trainer, "tidy"):
            trainer.tidy(trial)  # type: ignore[attr-defined]


class TrainerStages:
    """The stages of a study whose trainer returns records."""

    def __init__(self, context: Context | None, trainer: Any, declaration: Declaration) -> None:
        self.context, self.trainer, self.declaration = context, trainer, declaration

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
        _require_unchanged(study, _registered_in(folder), self.trainer)
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
        return [
            task_of(
                folder,
                (f"{place[arm, seed]:05d}", arm, f"seed-{seed}"),
                "train",
                f"on {arm}/seed-{seed}",
                {"trials": [[arm, seed]]},
            )
            for arm, seed in todo
        ]

    def after_trials(self, study: Study, folder: ResultsFolder) -> None:
        """Nothing follows."""

    def finish(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Nothing is left to do."""


def _registered_in(folder: ResultsFolder) -> dict[str, Any]:
    """Return what the registration of a folder says of the trainer; {} before there is one."""
    return (read_registration(folder) or {}).get(TRAINER, {})


def _require_unchanged(study: Study, registered: dict[str, Any], trainer: Trainer) -> None:
    """Raise ParibusError if a program of the study is not the one that was registered."""
    if not registered or study.trainer != COMMAND:
        return
    changed = trainer.changed_files(study, registered.get("program", {}))  # type: ignore[attr-defined]
    if changed:
        raise ParibusError(
            f"{some(changed, MOST_NAMED)} changed since the study began; restore it, or give "
            "the arm `ref`"
        )


def _require_registered(
    study: Study, folder: ResultsFolder, trainer: Trainer, declaration: Declaration
) -> None:
    """Raise ParibusError if the trainer is not the one that was registered."""
    registered = _registered_in(folder)
    _require_unchanged(study, registered, trainer)
    here = json.loads(json.dumps(registered_trainer(study, declaration)))
    keys = [name for name in here if here[name] != registered.get(name, here[name])]
    if keys:
        raise ParibusError(
            f"trainer '{study.trainer}' is not the one that was registered: its {keys[0]} changed "
            "since; restore it, or choose another folder with --results"
        )


def note_executor(folder: ResultsFolder, context: Context) -> None:
    """Record what starts the workers that train from here on; it counts in no digest."""
    write_json(folder.path / EXECUTOR, context.order.executor)
