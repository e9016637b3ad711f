"""The runner of trainers that return records: all trainers except the engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paribus.analysis import boundaries
from paribus.decision import own_rule, require_comparison, require_reachable
from paribus.declared import provided
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, extended, read_registration
from paribus.results.opened_texts import note, open_in_ledger, parts_of, require_fresh
from paribus.results.records import TRAINER
from paribus.results.registration import registration, settle
from paribus.results.store import LEDGER
from paribus.runs import records
from paribus.runs.advance import Runner, study_of, task_of
from paribus.runs.queue import Context, Task
from paribus.study import Study
from paribus.study.trainer import COMMAND, RUNS, STACKED, Trial


def runner_of(trainer: str) -> type[Runner]:
    """Return the runner for the studies of a trainer."""
    return provided("trainer", STACKED) if trainer == STACKED else TrainerRunner


class TrainerRunner(Runner):
    """Runs studies whose trainer returns records: a program, finished runs, a custom trainer."""

    def __init__(self, context: Context | None, trainer: Any = None) -> None:
        super().__init__(context)
        self.trainer = trainer

    @staticmethod
    def warm_up() -> None:
        """Import the modules that a program's trial needs."""
        provided("trainer", COMMAND)

    def slots(self) -> int:
        """Return the number of trials that can have their own GPUs; 1 if trials do not reserve
        GPUs."""
        study = study_of(self.context.order)
        n_gpus = study.program.gpus if study.trainer == COMMAND else None
        if not n_gpus:
            return 1
        from paribus.programs.machine import gpus

        return max(1, len(gpus()) // n_gpus)

    def execute(self, task: Task) -> None:
        """Run the trial of a task."""
        folder, order = ResultsFolder(Path(task.home)), self.context.order
        study = study_of(order, folder.path)
        self._declare(study, ResultsFolder(Path(order.results)))
        self.require_registered(study, folder)
        self.run_trials(study, folder, task.trials)

    def _declare(self, study: Study, folder: ResultsFolder) -> None:
        options = {"context": self.context} if study.trainer == COMMAND else {}
        self.trainer: Any = self.trainer or records.find_trainer(study, folder, **options)
        self.declaration = records.declared_by(study, self.trainer)

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Return the study, with a second stage if its folder has registered one."""
        self._declare(study, folder)
        study = extended(study, folder)
        folder.require_same(study)
        if study.trainer != RUNS:  # judge has its own words
            require_comparison(study)
        require_fresh(study, {TRAINER: records.text_of(self.declaration)}, folder)
        return study

    def register(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> Study:
        """Register the trainer's declaration."""
        if not folder.exists:
            require_reachable(study)
        if study.trainer == COMMAND:
            self.trainer.require_unchanged(study, folder, study.arms)
        declaration = records.declared_by(study, self.trainer) if is_tuning else self.declaration
        known = records.metrics_of(declaration)
        metrics = {name: known[name] for name in study.metrics}
        data: dict[str, Any] = {arm: {} for arm in study.arms}
        wanted = registration(study, data, "", metrics, {}, own_rule(study), boundaries(study))
        wanted[TRAINER] = records.registered_trainer(study, declaration)
        settle(folder, study, wanted)
        return study

    def begin(self, study: Study, folder: ResultsFolder) -> None:
        """Record in the ledger that the scored text is opened, and seal the entry."""
        note(folder)
        registered = read_registration(folder) or {}
        if parts_of(study, registered, "test") and not folder.has_sealed(LEDGER):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            folder.seal(LEDGER, open_in_ledger(folder, study, now))
        super().begin(study, folder)

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Return a task for each trial, in the order of seeds."""
        place = {trial: f"{k:05d}" for k, trial in enumerate(study.trials)}
        tasks = []
        for arm, seed in todo:
            name, doing = f"{place[arm, seed]}.{arm}.seed-{seed}", f"on {arm}/seed-{seed}"
            tasks.append(task_of(folder, "train", name, doing, trials=[[arm, seed]]))
        return tasks

    def run_trials(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Let the trainer run the unfinished trials, and seal each record."""
        todo = [trial for trial in trials if not folder.trial(*trial).is_finished]
        trainer = self.trainer
        if hasattr(trainer, "into"):  # it writes more than its records
            trainer = trainer.into(folder)
        try:
            for trial, record in records.trainer_records(study, trainer, todo):
                records.write_record(study, folder.trial(*trial), self.declaration, record)
                if self.context is not None:
                    self.context.report("finished", trials=[trial])
        except ParibusError:
            if not all(folder.trial(*trial).is_finished for trial in todo):
                raise  # or else another worker has sealed them

    def require_registered(self, study: Study, folder: ResultsFolder) -> None:
        """Raise ParibusError if the trainer differs from the registered one."""
        if study.trainer == COMMAND:
            self.trainer.require_unchanged(study, folder, study.arms)
        registered = (read_registration(folder) or {}).get(TRAINER, {})
        declared = json.loads(json.dumps(records.registered_trainer(study, self.declaration)))
        keys = [name for name in declared if declared[name] != registered.get(name, declared[name])]
        if keys:
            raise ParibusError(
                f"trainer '{study.trainer}' is not the one that was registered: its {keys[0]} "
                "changed since; restore it, or choose another folder with --results",
                code="changed",
            )
