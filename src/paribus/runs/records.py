"""A trainer's declaration and its records: checked, written and sealed."""

from __future__ import annotations

import logging
import math
import shutil
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from paribus.errors import ParibusError, blamed, nearest
from paribus.files import fleeting, whole_folder, write_bytes
from paribus.metric import ItemSums, Metric, by_name
from paribus.results import ResultsFolder
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study
from paribus.study.custom_code import measuring_digests
from paribus.study.importing import load_own
from paribus.study.trainer import (
    BUILT_IN,
    COMMAND,
    RUNS,
    Declaration,
    Trainer,
    Trial,
    TrialRecord,
)
from paribus.study.trust import require_trust

if TYPE_CHECKING:
    from paribus.runs.worker import Context

OWN_CONTROLS = ("setting", "repeatable")  # every study has them
COUNT = "count"
REPEATS = "repeats"
ITEMS, STEPS, SERIES = "item_scores.parquet", "steps.parquet", "series.parquet"


def find_trainer(
    study: Study, folder: ResultsFolder, context: Context | None = None, **options: Any
) -> Trainer:
    """Return the trainer that `study` names, which may be custom code.

    Built-in trainers are called with the results folder, the `context` of a child process and
    `options`. Raises ParibusError if the trainer cannot be created.
    """
    require_trust(study)
    if study.trainer == COMMAND:
        return resolve_name(BUILT_IN[COMMAND].trainer)(folder.path, context=context, **options)
    if study.trainer == RUNS:
        return resolve_name(BUILT_IN[RUNS].trainer)(folder.path, **options)
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
    try:
        declaration = trainer.declare(study)
    except ParibusError:
        raise
    except Exception as error:
        raise ParibusError(
            f"trainer '{study.trainer}' declares nothing: line {line_of(error)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    where = f"trainer '{study.trainer}' declares"
    if not isinstance(declaration, Declaration):
        raise ParibusError(
            f"{where} {declaration!r:.60}; return a paribus.extend.Declaration", code="own_code"
        )
    known = by_name({"the trainer": list(declaration.metrics)})
    finite = declaration.must_be_finite
    for name in (*study.metrics, *sorted(declaration.by_item), *([finite] if finite else [])):
        if name not in known:
            raise ParibusError(
                f"metric '{name}' is not declared by trainer '{study.trainer}': "
                f"{nearest(name, known)}"
            )
    deciding = [endpoint.metric for endpoint in study.judged]
    deciding += [study.tuning.select] if study.tuning else []
    for name in deciding:
        if known[name].better == "neither":
            raise ParibusError(
                f"'{name}' cannot be primary or choose among values: neither more nor less of it "
                "is better"
            )
    for name in OWN_CONTROLS:
        if name in declaration.controls:
            raise ParibusError(
                f"{where} a control '{name}', which every study has; give it another name"
            )
    return declaration


def metrics_of(declaration: Declaration) -> dict[str, Metric]:
    """Return the declared metrics as records have them, by name."""
    return {
        metric.name: replace(
            metric,
            record="evaluation",
            items=ItemSums(metric.name, COUNT) if metric.name in declaration.by_item else "",
        )
        for metric in declaration.metrics
    }


def registered_trainer(study: Study, declaration: Declaration) -> dict[str, Any]:
    """Return what the registration says of a trainer."""
    own = [study.trainer] if ":" in study.trainer else []
    return {
        "controls": {name: list(keys) for name, keys in declaration.controls.items()},
        "must_be_finite": declaration.must_be_finite,
        "sources": measuring_digests(own, "trainer", study.folder),
        **declaration.about,
        **text_of(declaration),
    }


def text_of(declaration: Declaration) -> dict[str, Any]:
    """Return what the registration says of the text that is scored; {} if nothing is declared."""
    if declaration.test is None:
        return {}
    text = asdict(declaration.test)
    return {"test": {"reuse": text.pop("reuse"), "text": text}}


def line_of(error: BaseException) -> str:
    """Return the place where custom code raised an error: `file.py:12`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


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
                    f"twice; asked for: {', '.join(map(str, todo[:3]))} ...",
                    code="own_code",
                )
            missing.remove(trial)
            yield trial, record
    if missing:
        raise ParibusError(
            f"{name} gave no record of {len(missing)} of {len(todo)} trials, such as "
            f"{missing[0]}; run the study again",
            code="own_code",
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
        with whole_folder(kept) as target:
            shutil.copytree(second.path, target, dirs_exist_ok=True)
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
