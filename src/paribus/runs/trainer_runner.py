"""Runner for trainers that return one record per trial, unlike the built-in engine."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from paribus.decision import require_comparison, require_reachable
from paribus.declared import PROVIDED, provided
from paribus.errors import ParibusError, blamed, nearest
from paribus.files import write_bytes
from paribus.metric import ItemSums, Metric, by_name
from paribus.results import ResultsFolder, extended, read_registration
from paribus.results.opened_texts import open_in_ledger, parts_of
from paribus.results.records import TRAINER
from paribus.results.store import LEDGER, results_folder
from paribus.results.trial_folder import TrialFolder
from paribus.runs.advance import Runner, study_of, train_task
from paribus.runs.processes import ending_children
from paribus.runs.queue import Context, Task
from paribus.runs.sealing import sealed_once
from paribus.study import Study
from paribus.study.custom_code import digests_of, load_own
from paribus.study.protocol import Trainer
from paribus.study.trainer import COMMAND, RUNS, STACKED, Declaration, Trial, TrialRecord
from paribus.study.trust import require_trust

COUNT = "count"
ITEMS, STEPS, SERIES = "item_scores.parquet", "steps.parquet", "series.parquet"


def find_trainer(study: Study, folder: ResultsFolder, **options: Any) -> Trainer:
    """Create the trainer of a study, which may be custom code.

    Built-in trainers receive the results folder and `options`. Raises ParibusError if the trainer
    cannot be created.
    """
    require_trust(study)
    if study.trainer in PROVIDED["trainer"]:
        return provided("trainer", study.trainer)(folder.path, **options)
    where = f"trainer = '{study.trainer}'"
    trainer = load_own(study.trainer, where, "trainer", _is_trainer, study.folder)
    if not isinstance(trainer, type):
        return trainer
    with blamed(where, "make its constructor callable without arguments"):
        return trainer()


def _is_trainer(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("declare", "run"))


def declared_by(study: Study, trainer: Trainer) -> Declaration:
    """Return a trainer's validated declaration, or raise ParibusError if it is invalid."""
    name = f"trainer '{study.trainer}'"
    with blamed(f"{name} has no valid declaration"):
        declaration = trainer.declare(study)
        if not isinstance(declaration, Declaration):
            raise TypeError(f"{declaration!r:.60} is not a paribus.extend.Declaration")
    known = by_name({"the trainer": list(declaration.metrics)})
    finite = declaration.must_be_finite
    for metric in (*study.metrics, *sorted(declaration.by_item), *([finite] if finite else [])):
        if metric not in known:
            raise ParibusError(
                f"metric '{metric}' is not declared by {name}; {nearest(metric, known)}"
            )
    deciding = [endpoint.metric for endpoint in study.judged]
    for metric in [*deciding, *([study.tuning.select] if study.tuning else [])]:
        if known[metric].better == "neither":
            raise ParibusError(
                f"'{metric}' cannot be primary or used for tuning, because it has no better "
                "direction; choose a metric whose direction is 'lower' or 'higher'"
            )
    return declaration


def metrics_of(declaration: Declaration) -> dict[str, Metric]:
    """Return the declared metrics in the form stored in trial records, keyed by name."""
    counted = {name: ItemSums(name, COUNT) for name in declaration.by_item}
    return {
        m.name: replace(m, record="evaluation", items=counted.get(m.name, ""))
        for m in declaration.metrics
    }


def compared_metrics(study: Study) -> dict[str, Metric]:
    """Return the metrics that a study compares, keyed by name."""
    if study.trainer == STACKED:
        with ending_children():  # measures and probes may be the user's own code
            return provided("function", "endpoint_metrics")(study)
    trainer = find_trainer(study, results_folder(study, None))
    return metrics_of(declared_by(study, trainer))


def registered_trainer(study: Study, declaration: Declaration) -> dict[str, Any]:
    """Return the description of a trainer for the study's registration."""
    return {
        "controls": {name: list(keys) for name, keys in declaration.controls.items()},
        "must_be_finite": declaration.must_be_finite,
        "sources": digests_of([study.trainer], "trainer", study.folder),
        **declaration.about,
        **({"test": asdict(declaration.test)} if declaration.test else {}),
    }


def trainer_records(
    study: Study, trainer: Trainer, todo: Sequence[Trial]
) -> Iterator[tuple[Trial, TrialRecord]]:
    """Run the trials in `todo`, and yield each trial with its record.

    Raises ParibusError if the trainer fails, or does not yield exactly one record per trial.
    """
    missing, name = list(todo), f"trainer '{study.trainer}'"
    try:
        for trial, record in trainer.run(study, todo) if todo else ():
            if trial not in missing:
                raise ValueError(f"trial {trial!r:.80} was not requested, or was yielded twice")
            if not isinstance(record, TrialRecord):
                raise TypeError(f"{record!r:.60} is not a paribus.extend.TrialRecord")
            missing.remove(trial)
            yield trial, record
    except ParibusError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "".join(f" on {arm}/seed-{seed}" for arm, seed in missing[:1])
        raise ParibusError(
            f"{name} failed{where} ({Path(last.filename).name}, line {last.lineno}): "
            f"{type(error).__name__}: {error}; fix it and run again (finished trials are kept)",
            code="own_code",
        ) from error
    if missing:
        raise ParibusError(
            f"{name} yielded no record for {len(missing)} of {len(todo)} trials, such as "
            f"{missing[0]}; yield a record for each of them",
            code="own_code",
        )


def write_record(
    study: Study, folder: TrialFolder, declaration: Declaration, record: TrialRecord
) -> None:
    """Write a trial's record atomically, or raise ParibusError for undeclared content."""
    with sealed_once(folder) as draft:
        tables, records = content_of(study, draft, declaration, record)
        for name, columns in tables.items():
            draft.write_columns(name, columns)
        for name, content in record.files.items():
            write_bytes(draft.path / name, content)
        for name, value in records.items():
            draft.write_json(name, value)
        draft.finish(["trial.json", "evaluation.json", *tables, *record.files])


def content_of(
    study: Study, folder: TrialFolder, declaration: Declaration, record: TrialRecord
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the tables and the JSON records of a trial, each keyed by file name.

    Raises ParibusError for undeclared content.
    """
    scores, items = _checked(study, f"trial {folder.label}", declaration, record)
    n_items, n_steps = len(next(iter(items.values()), ())), len(record.losses)
    tables: dict[str, dict[str, Any]] = {}
    if n_items:
        tables[ITEMS] = {"item": np.arange(n_items), COUNT: np.ones(n_items)} | items
    if n_steps:
        steps = np.asarray(record.steps or range(1, n_steps + 1), np.int64)
        tables[STEPS] = {"step": steps, "train_loss": np.asarray(record.losses, np.float64)}
    if points := [(name, *point) for name, curve in record.curves.items() for point in curve]:
        names, *numbers = zip(*points, strict=True)
        at_steps, values = np.asarray(numbers, np.float64)
        tables[SERIES] = {"metric": np.asarray(names), "step": at_steps, "value": values}
    trial = {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": study.setting_records[folder.arm],
        "metrics": {name: metric.metadata for name, metric in metrics_of(declaration).items()},
        "drawings": [],
        "own_modules": {},
        "controls": dict(record.controls),
        "blocks": {"kind": "item", "items": n_items, "blocks": n_items},
        "diverged_at": record.diverged_at,
    }
    records: dict[str, Any] = {
        "evaluation.json": scores,
        "trial.json": dict(record.about) | trial,
    }
    if record.seconds:  # a speed needs a time
        records["timing.json"] = {"training_seconds": record.seconds}
    return tables, records


def _checked(
    study: Study, where: str, declaration: Declaration, record: TrialRecord
) -> tuple[dict[str, float | None], dict[str, np.ndarray]]:
    """Validate a record, and return its scores (None if not finite) and its item scores.

    Both are keyed by metric. Raises ParibusError if anything is undeclared or inconsistent.
    """
    metrics = [metric.name for metric in declaration.metrics]
    for names, declared, what in (
        (record.scores, metrics, "score"),
        (record.items, declaration.by_item, "by_item metric"),
        (record.controls, declaration.controls, "control"),
    ):
        for name in names:
            if name not in declared:
                known = nearest(name, list(declared))
                raise ParibusError(f"{where}: {what} '{name}' is not declared; {known}")
    for endpoint in study.judged:
        if endpoint.metric not in record.scores:
            raise ParibusError(
                f"{where} has no score for the primary metric '{endpoint.metric}'; return NaN if "
                "the trial diverged"
            )
    at, n_steps = record.diverged_at, len(record.losses)
    if at is not None and not 0 <= at < (n_steps or math.inf):
        raise ParibusError(
            f"{where}: diverged_at = {at} must be the 0-based index of one of the {n_steps} steps"
        )
    with blamed(where, "return numbers, and the same number of item scores for every metric"):
        if any(isinstance(value, bool | str) for value in record.scores.values()):
            raise TypeError("scores must be numbers, not Booleans or strings")
        scores = {name: float(value) for name, value in record.scores.items()}
        items = {name: np.asarray(v, np.float64) for name, v in record.items.items()}
        if items and np.stack(list(items.values())).ndim != 2:
            raise ValueError("item scores must be a flat list, with one score per item")
        if not 0 <= (record.seconds or 0.0) < math.inf:
            raise ValueError(f"seconds = {record.seconds} is negative or not finite")
    for name, values in items.items():
        score, mean = scores.get(name, math.nan), values.mean() if values.size else math.nan
        if not math.isclose(score, mean, rel_tol=1e-9, abs_tol=1e-12):
            raise ParibusError(
                f"{where}: '{name}' is {score}, but the mean of its items is {mean}; return the "
                "mean as the score, or remove the metric from by_item"
            )
    return {k: v if math.isfinite(v) else None for k, v in scores.items()}, items


def runner_of(trainer: str) -> type[Runner]:
    """Return the runner class for a trainer."""
    return provided("trainer", STACKED) if trainer == STACKED else TrainerRunner


class TrainerRunner(Runner):
    """Runner for studies of external programs, finished runs or custom trainers."""

    def __init__(self, context: Context | None, trainer: Any = None) -> None:
        super().__init__(context)
        self.trainer = trainer

    @staticmethod
    def warm_up() -> None:
        """Import the modules that trials of external programs need."""
        provided("trainer", COMMAND)

    def slots(self) -> int:
        """Return the number of trials that fit on the GPUs, or 1 if trials do not reserve GPUs."""
        study = study_of(self.context.order)
        n_gpus = study.program.gpus if study.trainer == COMMAND else None
        if not n_gpus:
            return 1
        from paribus.programs.machine import gpus

        return max(1, len(gpus()) // n_gpus)

    def execute(self, task: Task) -> None:
        """Run the trials of a task and write their records."""
        folder, order = ResultsFolder(Path(task.home)), self.context.order
        study = study_of(order, folder.path)
        self._declare(study, ResultsFolder(Path(order.results)))
        self.require_registered(study, folder)
        self.run_trials(study, folder, task.trials)

    def _declare(self, study: Study, folder: ResultsFolder) -> None:
        options = {"context": self.context} if study.trainer == COMMAND else {}
        self.trainer: Any = self.trainer or find_trainer(study, folder, **options)
        self.declaration = declared_by(study, self.trainer)

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Return the study, extended by the second stage if one is registered."""
        self._declare(study, folder)
        study = extended(study, folder)
        folder.require_same(study)
        if study.trainer != RUNS:  # judge has its own words
            require_comparison(study)
        if not folder.exists:
            require_reachable(study)
        return study

    def register(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> Study:
        """Register the study with its trainer's declaration."""
        if study.trainer == COMMAND:
            self.trainer.require_unchanged(study, folder, study.arms)
        declaration = declared_by(study, self.trainer)
        known = metrics_of(declaration)
        metrics = {name: known[name] for name in study.metrics}
        data: dict[str, Any] = {arm: {} for arm in study.arms}
        trainer = {TRAINER: registered_trainer(study, declaration)}
        self.settle(study, folder, data, "", metrics, {}, **trainer)
        return study

    def begin(self, study: Study, folder: ResultsFolder) -> None:
        """Record in the ledger that the test text is opened, and copy the entry to the results."""
        registered = read_registration(folder) or {}
        if parts_of(study, registered, "test") and not folder.has_sealed(LEDGER):
            folder.seal(LEDGER, open_in_ledger(folder, study, is_begun=True))
        super().begin(study, folder)

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Create one task per trial, ordered as in the study."""
        wanted, planned = set(todo), enumerate(study.trials)
        return [train_task(folder, k, [trial]) for k, trial in planned if trial in wanted]

    def run_trials(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Run the unfinished trials with the trainer, and write each record."""
        todo = [trial for trial in trials if not folder.trial(*trial).is_finished]
        trainer = self.trainer
        if hasattr(trainer, "into"):  # it writes more than its records
            trainer = trainer.into(folder)
        try:
            for trial, record in trainer_records(study, trainer, todo):
                write_record(study, folder.trial(*trial), self.declaration, record)
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
        declared = json.loads(json.dumps(registered_trainer(study, self.declaration)))
        keys = [name for name in declared if declared[name] != registered.get(name, declared[name])]
        if keys:
            raise ParibusError(
                f"trainer '{study.trainer}' differs from the registered one in its {keys[0]}; "
                "restore it, or choose another folder with --results",
                code="changed",
            )
