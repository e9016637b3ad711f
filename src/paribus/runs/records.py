"""Records that a trainer returns: checked, written and sealed."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, SupportsFloat

import numpy as np

from paribus.errors import ParibusError, nearest
from paribus.files import fleeting, whole_folder, write_bytes
from paribus.results.trial_folder import TrialFolder
from paribus.runs.declared import COUNT, line_of, metrics_of
from paribus.study import Study
from paribus.study.trainer import Declaration, Trainer, Trial, TrialRecord

REPEATS = "repeats"
ITEMS, STEPS, SERIES = "item_scores.parquet", "steps.parquet", "series.parquet"


def trainer_records(
    study: Study, trainer: Trainer, todo: Sequence[Trial]
) -> Generator[tuple[Trial, TrialRecord]]:
    """Yield the records of `todo` as they are finished, and close the trainer's generator.

    Raises ParibusError if the trainer fails, or returns anything else.
    """
    missing, name = list(todo), f"trainer '{study.trainer}'"
    records = iter(trainer.run(study, todo) if todo else ())
    with closing(records) if isinstance(records, Generator) else nullcontext():
        while True:
            try:
                trial, record = next(records)
                if not isinstance(record, TrialRecord):
                    raise TypeError(f"{record!r:.60} is no paribus.extend.TrialRecord")
            except StopIteration:
                break
            except ParibusError:
                raise
            except Exception as error:
                arm, seed = missing[0] if missing else todo[-1]
                raise ParibusError(
                    f"{name} failed on {arm}/seed-{seed}, in line {line_of(error)}: "
                    f"{type(error).__name__}: {error}; finished trials are kept: fix it and run "
                    "again"
                ) from error
            if trial not in missing:
                raise ParibusError(
                    f"{name} gave a record of {trial!r:.80}, which it was not asked for, or gave "
                    f"twice; asked for: {', '.join(map(str, todo[:3]))} ..."
                )
            missing.remove(trial)
            yield trial, record
    if missing:
        raise ParibusError(
            f"{name} gave no record of {len(missing)} of {len(todo)} trials, such as "
            f"{missing[0]}; run the study again"
        )


def write_record(
    study: Study, folder: TrialFolder, declaration: Declaration, record: TrialRecord
) -> None:
    """Write and seal the record of a trial, whose folder appears whole.

    If another worker has sealed the trial meanwhile, its record counts, whatever its scores; a
    record that differs from it is kept as a repeat. Raises ParibusError for undeclared content.
    """
    if not folder.is_finished:
        try:
            with whole_folder(folder.path) as path:
                _write(study, replace(folder, path=path), declaration, record)
            return
        except ParibusError:
            if not folder.is_finished:
                raise
    with fleeting() as path:
        second = replace(folder, path=path / "trial")
        _write(study, second, declaration, record)
        if second.seal == folder.seal:
            return
        home = folder.path.parents[2] / REPEATS / folder.arm
        kept = home / f"seed-{folder.seed}.{len(list(home.glob(f'seed-{folder.seed}.*'))) + 1}"
        with whole_folder(kept) as whole:
            shutil.copytree(second.path, whole, dirs_exist_ok=True)
    logging.getLogger("paribus").warning(
        "trial %s was run by two workers, with different records; the first counts, and the "
        "second is in %s",
        *(folder.label, kept),
    )


def _write(
    study: Study, folder: TrialFolder, declaration: Declaration, record: TrialRecord
) -> None:
    scores, items = _checked(study, f"trial {folder.label}", declaration, record)
    tables: dict[str, dict[str, Any]] = {}
    n_items = len(next(iter(items.values()), ()))
    if n_items:
        tables[ITEMS] = {"item": np.arange(n_items), COUNT: np.ones(n_items)} | items
    if n := len(record.losses):
        steps = np.asarray(record.steps or range(1, n + 1), np.int64)
        tables[STEPS] = {"step": steps, "train_loss": np.asarray(record.losses, np.float64)}
    if points := [(name, *point) for name, curve in record.curves.items() for point in curve]:
        names, at_steps, values = zip(*points, strict=True)
        tables[SERIES] = {
            "metric": np.asarray(names),
            "step": np.asarray(at_steps, np.float64),
            "value": np.asarray(values, np.float64),
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
    """Return scores, with None for non-finite ones, and items by metric.

    Raises ParibusError for anything that was not declared or is inconsistent.
    """
    n_steps, at = len(record.losses), record.diverged_at
    if at is not None and not (at >= 0 and (at < n_steps or not n_steps)):
        raise ParibusError(f"{where} diverged at step {at} of {n_steps}; diverged_at counts from 0")
    if record.seconds is not None and not 0 <= record.seconds < math.inf:
        raise ParibusError(f"{where} took {record.seconds} seconds; give a number")
    for endpoint in study.judged:
        if endpoint.metric not in record.scores:
            raise ParibusError(
                f"{where} has no score of '{endpoint.metric}', which is primary; a trial that "
                "diverged has NaN"
            )
    metrics = [metric.name for metric in declaration.metrics]
    _require_declared(record.scores, metrics, f"{where}: scores of")
    _require_declared(record.items, declaration.by_item, f"{where}: items, not in by_item, of")
    _require_declared(record.controls, declaration.controls, f"{where}: control")
    for name, value in record.scores.items():
        if isinstance(value, bool | str) or not isinstance(value, SupportsFloat):
            raise ParibusError(f"{where}: the score of '{name}' is {value!r:.40}, and no number")
    scores = {name: float(value) for name, value in record.scores.items()}
    items = {name: np.asarray(values, np.float64) for name, values in record.items.items()}
    sizes = sorted({values.shape for values in items.values()})
    if len(sizes) > 1 or any(len(size) != 1 for size in sizes):
        raise ParibusError(
            f"{where}: items of {', '.join(sorted(items))} are no lists of one length ({sizes}); "
            "all metrics by item are of the same items"
        )
    for name, values in items.items():
        score, mean = scores.get(name, math.nan), values.mean() if values.size else math.nan
        if not math.isclose(score, mean, rel_tol=1e-9, abs_tol=1e-12):
            raise ParibusError(
                f"{where}: '{name}' is {score} and the mean of its items is {mean}; it is declared "
                "in by_item, as their mean"
            )
    return {k: v if math.isfinite(v) else None for k, v in scores.items()}, items


def _require_declared(names: Iterable[str], declared: Iterable[str], what: str) -> None:
    """Raise ParibusError for a name that is not declared."""
    declared = list(declared)
    for name in names:
        if name not in declared:
            raise ParibusError(f"{what} '{name}', which is not declared: {nearest(name, declared)}")
