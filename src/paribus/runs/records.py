"""Records that a trainer returns: checked, written and sealed."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsFloat

import numpy as np

from paribus.errors import ParibusError, nearest
from paribus.files import fleeting, whole_folder, write_bytes
from paribus.metric import Metric
from paribus.results.trial_folder import TrialFolder
from paribus.runs.declared import COUNT, line_of, metrics_of
from paribus.study import Study
from paribus.study.trainer import Declaration, Trainer, TrialRecord

REPEATS = "repeats"
ITEMS, STEPS, SERIES = "item_scores.parquet", "steps.parquet", "series.parquet"


def trainer_records(
    study: Study, trainer: Trainer, todo: Sequence[tuple[str, int]]
) -> Generator[tuple[tuple[str, int], TrialRecord]]:
    """Yield the records of `todo` as they are finished. Raises ParibusError for any other.

    When it is closed, so is what the trainer was in the middle of.
    """
    with contextlib.ExitStack() as last:
        given = iter(trainer.run(study, todo) if todo else ())
        if isinstance(given, Generator):
            last.callback(given.close)
        yield from _checked_records(study, given, todo)


def _checked_records(
    study: Study, given: Iterator[Any], todo: Sequence[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], TrialRecord]]:
    left = set(todo)
    while True:
        try:
            trial, record = next(given)
            if not isinstance(record, TrialRecord):
                raise TypeError(f"{record!r:.60} is no paribus.extend.TrialRecord")
        except StopIteration:
            break
        except ParibusError:
            raise
        except Exception as error:
            arm, seed = next(one for one in todo if one in left)
            raise ParibusError(
                f"trainer '{study.trainer}' failed on {arm}/seed-{seed}, in line "
                f"{line_of(error)}: {type(error).__name__}: {error}; finished trials are kept: fix "
                "it and run again"
            ) from error
        if trial not in left:
            raise ParibusError(
                f"trainer '{study.trainer}' gave a record of {trial!r:.80}, which it was not asked "
                f"for, or gave twice; asked for: {', '.join(map(str, todo[:3]))} ..."
            )
        left.discard(trial)
        yield trial, record
    if left:
        raise ParibusError(
            f"trainer '{study.trainer}' gave no record of {len(left)} of {len(todo)} trials, such "
            f"as {min(left)}; run the study again"
        )


def write_record(
    study: Study,
    folder: TrialFolder,
    declaration: Declaration,
    record: TrialRecord,
) -> None:
    """Write and seal what a trainer gave of one trial.

    The trial's folder appears whole. If another worker has sealed the trial meanwhile, its record
    counts, whatever its scores: this one is compared with it, and kept as a repeat if it differs.

    Raises ParibusError for what was not declared.
    """
    if not folder.is_finished:
        try:
            with whole_folder(folder.path) as made:
                _write(study, replace(folder, path=made), declaration, record)
            return
        except ParibusError:
            if not folder.is_finished:
                raise
    with fleeting() as made:
        second = replace(folder, path=made / "trial")
        _write(study, second, declaration, record)
        if second.seal == folder.seal:
            return
        home = folder.path.parents[2] / REPEATS / folder.arm
        k = len(list(home.glob(f"seed-{folder.seed}.*")) if home.is_dir() else ()) + 1
        kept = home / f"seed-{folder.seed}.{k}"
        with whole_folder(kept) as whole:
            shutil.copytree(second.path, whole, dirs_exist_ok=True)
    logging.getLogger("paribus").warning(
        "trial %s was run by two workers, with different records; the first counts, and the "
        "second is in %s",
        *(folder.label, kept),
    )


def _write(
    study: Study,
    folder: TrialFolder,
    declaration: Declaration,
    record: TrialRecord,
) -> None:
    metrics = metrics_of(declaration)
    steps, at = len(record.losses), record.diverged_at
    if at is not None and not (at >= 0 and (at < steps or not steps)):
        raise ParibusError(
            f"trial {folder.label} diverged at step {at} of {steps}; diverged_at counts from 0"
        )
    if record.seconds is not None and not 0 <= record.seconds < math.inf:
        raise ParibusError(f"trial {folder.label} took {record.seconds} seconds; give a number")
    for endpoint in study.judged:
        if endpoint.metric not in record.scores:
            raise ParibusError(
                f"trial {folder.label} has no score of '{endpoint.metric}', which is primary; a "
                "trial that diverged has NaN"
            )
    scores = _numbers(folder, "scores", record.scores, metrics)
    items = _by_item(folder, declaration, _declared(folder, "items", record.items, metrics))
    for name, values in items.items():
        given, mean = scores.get(name), float(values.mean()) if values.size else math.nan
        if given is None or not math.isclose(given, mean, rel_tol=1e-9, abs_tol=1e-12):
            raise ParibusError(
                f"trial {folder.label}: '{name}' is {given} and the mean of its items is {mean}; "
                "it is declared in by_item, as their mean"
            )
    for name in record.controls:
        if name not in declaration.controls:
            raise ParibusError(
                f"trial {folder.label}: control '{name}' is not declared: "
                f"{nearest(name, declaration.controls)}"
            )
    written = ["trial.json", "evaluation.json"]
    n = len(next(iter(items.values()), ()))
    if n:
        columns = {"item": np.arange(n), COUNT: np.ones(n)} | items
        folder.write_columns(ITEMS, columns, dict.fromkeys(columns, ""))
        written.append(ITEMS)
    if len(record.losses):
        losses = np.asarray(record.losses, np.float64)
        at_steps = record.steps or range(1, len(losses) + 1)
        columns = {"step": np.asarray(at_steps, np.int64), "train_loss": losses}
        folder.write_columns(STEPS, columns, {"step": "steps", "train_loss": ""})
        written.append(STEPS)
    if points := [(name, *point) for name, curve in record.curves.items() for point in curve]:
        names, steps_, values = zip(*points, strict=True)
        columns = {"metric": np.asarray(names), "step": np.asarray(steps_, np.float64)}
        columns["value"] = np.asarray(values, np.float64)
        folder.write_columns(SERIES, columns, dict.fromkeys(columns, ""))
        written.append(SERIES)
    for name, content in record.files.items():
        write_bytes(folder.path / name, content)
        written.append(name)
    about = dict(record.about) | {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": study.setting(folder.arm).model_dump(mode="json"),
        "metrics": {name: metric.about for name, metric in metrics.items()},
        "drawings": [],
        "own_modules": {},
        "controls": dict(record.controls),
        "blocks": {"kind": "item", "items": n, "blocks": n},
        "diverged_at": record.diverged_at,
    }
    if record.seconds:  # of none no speed can be told
        timing = {"training_seconds": record.seconds, "evaluation_seconds": 0.0}
        folder.write_json("timing.json", timing)
    folder.write_json("evaluation.json", scores)
    folder.write_json("trial.json", about)
    folder.finish(written)


def _by_item(
    folder: TrialFolder, declaration: Declaration, given: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    items = {name: np.asarray(values, np.float64) for name, values in given.items()}
    sizes = sorted({values.size for values in items.values()})
    if len(sizes) > 1 or any(values.ndim != 1 for values in items.values()):
        raise ParibusError(
            f"trial {folder.label}: items of {', '.join(sorted(items))} are no lists of one length "
            f"({sizes}); all metrics by item are of the same items"
        )
    if undeclared := sorted(set(items) - declaration.by_item):
        raise ParibusError(
            f"trial {folder.label}: items of '{undeclared[0]}', which is not in by_item of the "
            "declaration"
        )
    return items


def _numbers(
    folder: TrialFolder, what: str, given: Mapping[str, float], metrics: Mapping[str, Metric]
) -> dict[str, float | None]:
    """Return scores as JSON has them: null where one is not finite."""
    found = _declared(folder, what, given, metrics)
    for name, value in found.items():
        if isinstance(value, bool | str) or not isinstance(value, SupportsFloat):
            raise ParibusError(
                f"trial {folder.label}: the score of '{name}' is {value!r:.40}, and no number"
            )
    return {n: float(v) if math.isfinite(float(v)) else None for n, v in found.items()}


def _declared(
    folder: TrialFolder, what: str, given: Mapping[str, Any], metrics: Mapping[str, Metric]
) -> dict[str, Any]:
    for name in given:
        if name not in metrics:
            raise ParibusError(
                f"trial {folder.label}: {what} of '{name}', which is not declared: "
                f"{nearest(name, metrics)}"
            )
    return dict(given)
