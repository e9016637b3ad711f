"""Checking, writing and sealing a trainer's declaration and records."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from paribus.declared import PROVIDED, provided
from paribus.errors import ParibusError, blamed, nearest
from paribus.files import write_bytes
from paribus.metric import ItemSums, Metric, by_name
from paribus.results import ResultsFolder
from paribus.results.trial_folder import TrialFolder
from paribus.runs.sealing import sealed_once
from paribus.study import Study
from paribus.study.custom_code import digests_of, load_own
from paribus.study.protocol import Trainer
from paribus.study.trainer import Declaration, Trial, TrialRecord
from paribus.study.trust import require_trust

OWN_CONTROLS = ("setting", "repeatable")  # every study has them
COUNT = "count"
ITEMS, STEPS, SERIES = "item_scores.parquet", "steps.parquet", "series.parquet"


def find_trainer(study: Study, folder: ResultsFolder, **options: Any) -> Trainer:
    """Return the trainer that `study` names, which may be custom code.

    Built-in trainers are called with the results folder and `options`. Raises ParibusError if the
    trainer cannot be created.
    """
    require_trust(study)
    if study.trainer in PROVIDED["trainer"]:
        return provided("trainer", study.trainer)(folder.path, **options)
    where = f"trainer = '{study.trainer}'"
    trainer = load_own(study.trainer, where, "trainer", _is_trainer, study.folder)
    if not isinstance(trainer, type):
        return trainer
    with blamed(where, "it is made without arguments"):
        return trainer()


def _is_trainer(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("declare", "run"))


def declared_by(study: Study, trainer: Trainer) -> Declaration:
    """Return a trainer's declaration. Raises ParibusError if it is invalid."""
    name = f"trainer '{study.trainer}'"
    with blamed(f"{name} declares nothing"):
        declaration = trainer.declare(study)
        if not isinstance(declaration, Declaration):
            raise TypeError(f"{declaration!r:.60} is not a paribus.extend.Declaration")
    known = by_name({"the trainer": list(declaration.metrics)})
    finite = declaration.must_be_finite
    for metric in (*study.metrics, *sorted(declaration.by_item), *([finite] if finite else [])):
        if metric not in known:
            raise ParibusError(
                f"metric '{metric}' is not declared by {name}: {nearest(metric, known)}"
            )
    deciding = [endpoint.metric for endpoint in study.judged]
    for metric in [*deciding, *([study.tuning.select] if study.tuning else [])]:
        if known[metric].better == "neither":
            raise ParibusError(
                f"'{metric}' cannot be primary or select tuned values, because it has no better "
                "direction; name a metric that has one"
            )
    if taken := set(OWN_CONTROLS) & set(declaration.controls):
        raise ParibusError(
            f"{name} declares a control '{min(taken)}', which every study has; rename it"
        )
    return declaration


def metrics_of(declaration: Declaration) -> dict[str, Metric]:
    """Return the declared metrics in the form of records, by name."""
    return {
        metric.name: replace(
            metric,
            record="evaluation",
            items=ItemSums(metric.name, COUNT) if metric.name in declaration.by_item else "",
        )
        for metric in declaration.metrics
    }


def registered_trainer(study: Study, declaration: Declaration) -> dict[str, Any]:
    """Return the registered description of a trainer."""
    return {
        "controls": {name: list(keys) for name, keys in declaration.controls.items()},
        "must_be_finite": declaration.must_be_finite,
        "sources": digests_of([study.trainer], "trainer", study.folder),
        **declaration.about,
        **text_of(declaration),
    }


def text_of(declaration: Declaration) -> dict[str, Any]:
    """Return the registered description of the scored text; {} if nothing is declared."""
    if declaration.test is None:
        return {}
    text = asdict(declaration.test)
    return {"test": {"reuse": text.pop("reuse"), "text": text}}


def trainer_records(
    study: Study, trainer: Trainer, todo: Sequence[Trial]
) -> Iterator[tuple[Trial, TrialRecord]]:
    """Yield the records of the trials in `todo` as they finish.

    Raises ParibusError if the trainer fails, or returns anything but these records.
    """
    missing, name = list(todo), f"trainer '{study.trainer}'"
    records: Any = iter(trainer.run(study, todo) if todo else ())
    with contextlib.closing(records) if hasattr(records, "close") else contextlib.nullcontext():
        while True:
            where = "on {}/seed-{}".format(*missing[0]) if missing else "after its last trial"
            try:
                trial, record = next(records, (None, None))
                if trial is None:
                    break
                if trial not in missing:
                    raise ValueError(
                        f"the record of {trial!r:.80} was not requested, or came twice"
                    )
                if not isinstance(record, TrialRecord):
                    raise TypeError(f"{record!r:.60} is not a paribus.extend.TrialRecord")
            except ParibusError:
                raise
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                raise ParibusError(
                    f"{name} failed {where}, in line {Path(last.filename).name}:{last.lineno}: "
                    f"{type(error).__name__}: {error}; finished trials are kept: fix it and run "
                    "again",
                    code="own_code",
                ) from error
            missing.remove(trial)
            yield trial, record
    if missing:
        raise ParibusError(
            f"{name} returned no record for {len(missing)} of {len(todo)} trials, such as "
            f"{missing[0]}; run the study again",
            code="own_code",
        )


def write_record(
    study: Study, folder: TrialFolder, declaration: Declaration, record: TrialRecord
) -> None:
    """Write and seal the record of a trial. Raises ParibusError for undeclared content."""
    with sealed_once(folder) as draft:
        fill_folder(study, draft, declaration, record)


def fill_folder(
    study: Study, folder: TrialFolder, declaration: Declaration, record: TrialRecord
) -> None:
    """Write and seal the record of a trial. Raises ParibusError for undeclared content."""
    scores, items = _checked(study, f"trial {folder.label}", declaration, record)
    tables: dict[str, dict[str, Any]] = {}
    n_items = len(next(iter(items.values()), ()))
    if n_items:
        tables[ITEMS] = {"item": np.arange(n_items), COUNT: np.ones(n_items)} | items
    if n := len(record.losses):
        steps = np.asarray(record.steps or range(1, n + 1), np.int64)
        tables[STEPS] = {"step": steps, "train_loss": np.asarray(record.losses, np.float64)}
    if points := [(name, *point) for name, curve in record.curves.items() for point in curve]:
        names, at_steps, values = map(np.asarray, zip(*points, strict=True))
        tables[SERIES] = {
            "metric": names,
            "step": at_steps.astype(np.float64),
            "value": values.astype(np.float64),
        }
    for name, columns in tables.items():
        units = dict.fromkeys(columns, "") | ({"step": "steps"} if name == STEPS else {})
        folder.write_columns(name, columns, units)
    for name, content in record.files.items():
        write_bytes(folder.path / name, content)
    if record.seconds:  # a speed needs a time
        timing = {"training_seconds": record.seconds, "evaluation_seconds": 0.0}
        folder.write_json("timing.json", timing)
    folder.write_json("evaluation.json", scores)
    trial = {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": study.setting(folder.arm).model_dump(mode="json"),
        "metrics": {name: metric.about for name, metric in metrics_of(declaration).items()},
        "drawings": [],
        "own_modules": {},
        "controls": dict(record.controls),
        "blocks": {"kind": "item", "items": n_items, "blocks": n_items},
        "diverged_at": record.diverged_at,
    }
    folder.write_json("trial.json", dict(record.about) | trial)
    folder.finish(["trial.json", "evaluation.json", *tables, *record.files])


def _checked(
    study: Study, where: str, declaration: Declaration, record: TrialRecord
) -> tuple[dict[str, float | None], dict[str, np.ndarray]]:
    """Return the scores, with None for non-finite ones, and the items by metric.

    Raises ParibusError for anything that was not declared or is inconsistent.
    """
    metrics = [metric.name for metric in declaration.metrics]
    for names, declared, what in (
        (record.scores, metrics, "scores of"),
        (record.items, declaration.by_item, "items, not in by_item, of"),
        (record.controls, declaration.controls, "control"),
    ):
        for name in names:
            if name not in declared:
                known = nearest(name, list(declared))
                raise ParibusError(f"{where}: {what} '{name}', which is not declared: {known}")
    for endpoint in study.judged:
        if endpoint.metric not in record.scores:
            raise ParibusError(
                f"{where} has no score of '{endpoint.metric}', which is primary; a trial that "
                "diverged has NaN"
            )
    n_steps, at = len(record.losses), record.diverged_at
    if at is not None and not (at >= 0 and (at < n_steps or not n_steps)):
        raise ParibusError(
            f"{where}: diverged_at = {at} must be one of the {n_steps} steps, counted from 0"
        )
    with blamed(where, "scores, seconds and items are numbers, items of one length"):
        if any(isinstance(value, bool | str) for value in record.scores.values()):
            raise TypeError("a score is a Boolean or a string")
        scores = {name: float(value) for name, value in record.scores.items()}
        items = {name: np.asarray(v, np.float64) for name, v in record.items.items()}
        if items and np.stack(list(items.values())).ndim != 2:
            raise ValueError("the scores of a metric by item must be a list per item")
        if not 0 <= (record.seconds or 0.0) < math.inf:
            raise ValueError(f"seconds = {record.seconds}")
    for name, values in items.items():
        score, mean = scores.get(name, math.nan), values.mean() if values.size else math.nan
        if not math.isclose(score, mean, rel_tol=1e-9, abs_tol=1e-12):
            raise ParibusError(
                f"{where}: '{name}' is {score} and the mean of its items is {mean}; it is declared "
                "in by_item, as their mean"
            )
    return {k: v if math.isfinite(v) else None for k, v in scores.items()}, items
