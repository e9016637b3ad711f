"""Running a study: register, tune, train, look, seal, by the trainer that it names."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol, SupportsFloat, runtime_checkable

import numpy as np
from pydantic import ValidationError

from paribus.analysis import boundaries
from paribus.decision import own_rule, require_comparison, require_reachable
from paribus.errors import ParibusError, nearest
from paribus.files import write_bytes
from paribus.ledger import TextPart
from paribus.metric import ItemSums, Metric, by_name
from paribus.results import (
    Results,
    ResultsFolder,
    extended,
    judged_files,
    load_results,
    needed_trials,
    read_looks,
)
from paribus.results.look_record import arms_by_seed
from paribus.results.opened_texts import (
    note,
    open_in_ledger,
    parts_of,
    require_fresh,
)
from paribus.results.record_format import TRAINER
from paribus.results.registration import FILE, read_registration, registration, settle
from paribus.results.store import LEDGER
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study
from paribus.study.custom_code import measuring_digests
from paribus.study.importing import load_own
from paribus.study.trainer import (
    COMMAND,
    RUNS,
    STACKED,
    Declaration,
    TestText,
    Trainer,
    Trial,
    TrialRecord,
)
from paribus.study.trust import require_trust
from paribus.study.tuning_study import FOLDER as TUNING
from paribus.trainers.looking import take_look
from paribus.trainers.tune import tune

OWN_CONTROLS = ("setting", "repeatable")  # of every study
LOG = logging.getLogger("paribus")
ITEMS, STEPS, SERIES = "item_scores.parquet", "steps.parquet", "series.parquet"
COUNT = "count"
# Trainers that ship write their own records.
ADAPTERS = {STACKED: "paribus.engine.execution.run"}
# Those that give them, as one's own do; made of the results folder and the options of `run`.
TRAINERS = {
    COMMAND: "paribus.trainers.command.trainer:Command",
    RUNS: "paribus.trainers.runs:Runs",
}
EXECUTION = "paribus.engine.execution"
ByJobs = Callable[[Study, ResultsFolder, Sequence[Trial]], None]


def results_folder(study: Study, results: str | os.PathLike[str] | None) -> ResultsFolder:
    """Return where the results of `study` are: `results`, or else `results/<name of the study>`."""
    return ResultsFolder(Path(results) if results else Path("results") / study.name)


def run(study: Study, results: str | os.PathLike[str] | None = None, **options: Any) -> Results:
    """Train, evaluate and record every trial of `study` that is not finished yet.

    Args:
        study: what `load_study` gives.
        results: the results folder; by default `results/<name of the study>`.
        options: of the study's trainer; for `stacked` see `paribus.engine.execution.run.run`, for
            `command` `workers`, `backend` and `watch`, as there. One of the user's own takes
            `backend`: jobs of a scheduler run it, each for its part.

    Returns what `load_results` reads. Raises ParibusError on bad input, before anything is
    written, and where a trial fails; trials that are finished by then are kept.
    """
    if study.trainer in ADAPTERS:
        return resolve_name(ADAPTERS[study.trainer]).run(study, results, **options)
    folder = results_folder(study, results)
    folder.require_home()
    backend = _job_backend(study, options)
    trainer = find_trainer(study, folder, **options)

    def train_round(round_: Study, there: ResultsFolder) -> None:
        """Train a round of tuning trials, in the folder of its own."""
        with there.lock(swept=backend is None):
            _train(round_, there, trainer, declaration, by_jobs, is_tuning=True)

    with _entered(folder, backend):
        by_jobs = None
        if backend is not None:
            train = resolve_name(f"{EXECUTION}.jobs.crew:train_by_jobs")
            about = {key: options.get(key) for key in ("workers", "watch")}
            by_jobs = partial(train, backend, **about)
        study = extended(study, folder)
        folder.require_same(study)
        if study.trainer != RUNS:  # judge has its own words
            require_comparison(study)
        declaration = declared_by(study, trainer)
        _require_fresh(study, folder, declaration)
        earlier = read_registration(folder)
        if study.tuning is not None:
            if not (folder.path / FILE).is_file():
                _register(study, folder, trainer, declaration)
            _begin(study, folder)

        while True:
            if study.tuning is not None:
                study = tune(study, folder, train_round)
            if not _train(study, folder, trainer, declaration, by_jobs):
                break
        if study.trainer == RUNS:
            _tell_files(trainer, folder, earlier)
    return load_results(folder.path)


def _tell_files(trainer: Any, folder: ResultsFolder, earlier: dict[str, Any] | None) -> None:
    """Record what became of the files that were read; `earlier` is the registration before."""
    about = trainer.about(earlier)
    if about is not None:
        if before := folder.read_runs():  # of a first stage
            about = about.model_copy(
                update={"exploratory": before.exploratory or about.exploratory}
            )
        folder.write_runs(about)
        return
    if changed := judged_files.changed(folder):
        raise ParibusError(
            f"{changed}; restore what was judged, or judge what there is now into another folder "
            "with --results"
        )
    if trainer.reading is not None:
        from paribus.trainers.runs import require_judged

        require_judged(folder, trainer.reading)


def register(study: Study, results: str | os.PathLike[str] | None = None, **options: Any) -> Path:
    """Fix what would count before any run: write `registration.json`; returns its path.

    Raises ParibusError where something else is registered there already.
    """
    if study.trainer in ADAPTERS:
        return resolve_name(ADAPTERS[study.trainer]).register(study, results, **options)
    folder = results_folder(study, results)
    folder.require_home()
    trainer = find_trainer(study, folder, **options)
    with folder.lock():
        study = extended(study, folder)
        folder.require_same(study)
        if study.trainer != RUNS:  # judge has its own words
            require_comparison(study)
        declaration = declared_by(study, trainer)
        _require_fresh(study, folder, declaration)
        _register(study, folder, trainer, declaration)
        note(folder)
    return folder.path / FILE


def try_briefly(study: Study, results: str | os.PathLike[str], **options: Any) -> dict[str, str]:
    """Run each arm of a command for some seconds; returns what was seen of each, in words."""
    trainer = find_trainer(study, results_folder(study, results), **options)
    return trainer.try_briefly(study)  # type: ignore[attr-defined]


def find_trainer(study: Study, folder: ResultsFolder, **options: Any) -> Trainer:
    """Return the trainer that `study` names; of the user's own, its code is run.

    Raises ParibusError, also for options that it does not take.
    """
    require_trust(study)
    if study.trainer in TRAINERS:
        return resolve_name(TRAINERS[study.trainer])(folder.path, **options)
    if options:
        raise ParibusError(
            f"trainer '{study.trainer}' takes no {' or '.join(sorted(options))}; leave it out, or "
            "make it a key of its own section"
        )
    where = f"trainer = '{study.trainer}'"
    found = load_own(study.trainer, where, "trainer", _is_trainer, study.folder)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        raise ParibusError(
            f"{where}: {type(error).__name__}: {error}; it is made without arguments"
        ) from error


def _is_trainer(found: object) -> bool:
    return all(callable(getattr(found, name, None)) for name in ("declare", "run"))


def declared_by(study: Study, trainer: Trainer) -> Declaration:
    """Return what a trainer declares, checked. Raises ParibusError."""
    try:
        found = trainer.declare(study)
    except (ParibusError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise ParibusError(
            f"trainer '{study.trainer}' declares nothing: line {_line_of(error)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    found = _checked(study, found)
    known = by_name({"the trainer": list(found.metrics)})
    for name in study.metrics:
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
    if found.must_be_finite and found.must_be_finite not in known:
        raise ParibusError(
            f"trainer '{study.trainer}' says that '{found.must_be_finite}' must be finite, and "
            f"declares no such metric: {nearest(found.must_be_finite, known)}"
        )
    return found


def _checked(study: Study, found: Any) -> Declaration:
    """Return the declaration with tuples where it has other lists. Raises ParibusError."""
    where = f"trainer '{study.trainer}' declares"
    if not isinstance(found, Declaration):
        raise ParibusError(f"{where} {found!r:.60}; return a paribus.extend.Declaration")
    found = replace(found, metrics=tuple(found.metrics), by_item=frozenset(found.by_item))
    names = {metric.name for metric in found.metrics}
    if unknown := sorted(found.by_item - names):
        raise ParibusError(
            f"{where} '{unknown[0]}' by item, and no such metric: {nearest(unknown[0], names)}"
        )
    if found.test is not None:
        _require_text(found.test, where)
    for name, keys in found.controls.items():
        if name in OWN_CONTROLS:
            raise ParibusError(
                f"{where} a control '{name}', which every study has; give it another name"
            )
        if isinstance(keys, str):
            raise ParibusError(
                f"{where} the keys of control '{name}' as one text; write ({keys!r},)"
            )
    return found


def _require_text(text: Any, where: str) -> None:
    """Raise ParibusError where a trainer's test text is told otherwise than by digests."""
    if not isinstance(text, TestText):
        raise ParibusError(f"{where} the test text {text!r:.60}; give a paribus.extend.TestText")
    about = asdict(text)
    if (reuse := about.pop("reuse")) not in ("declare", "forbid"):
        raise ParibusError(f"{where} test.reuse = {reuse!r:.40}; it is 'declare' or 'forbid'")
    try:
        TextPart(role="test", **about)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise ParibusError(
            f"{where} test.{key} = {first['input']!r:.70}: {first['msg']}; a text is told by its "
            "SHA-256, 64 digits, and its place by bytes"
        ) from None


def _metrics(declaration: Declaration) -> dict[str, Metric]:
    """Return what is declared, as records have it: read at the end, over items where it is."""
    return {
        metric.name: replace(
            metric,
            record="evaluation",
            items=ItemSums(metric.name, COUNT) if metric.name in declaration.by_item else "",
        )
        for metric in declaration.metrics
    }


def _register(study: Study, folder: ResultsFolder, trainer: Any, declaration: Declaration) -> None:
    if not folder.exists:
        require_reachable(study)
    known = _metrics(declaration)
    metrics = {name: known[name] for name in study.metrics}
    data: dict[str, Any] = {arm: {} for arm in study.arms}
    wanted = registration(study, data, "", metrics, {}, own_rule(study), boundaries(study))
    wanted[TRAINER] = _of_trainer(study, declaration)
    there = partial(trainer.there, study) if study.trainer == RUNS else dict
    settle(folder, study, wanted, there=there)


def _of_trainer(study: Study, declaration: Declaration) -> dict[str, Any]:
    """Return what is registered of a trainer."""
    return {
        "controls": {name: list(keys) for name, keys in declaration.controls.items()},
        "must_be_finite": declaration.must_be_finite,
        "sources": measuring_digests(
            [study.trainer] if ":" in study.trainer else [], "trainer", study.folder
        ),
        **declaration.about,
    } | _test_text(declaration)


def _test_text(declaration: Declaration) -> dict[str, Any]:
    """Return what is registered of the text that scores are of; nothing where nothing is said."""
    if declaration.test is None:
        return {}
    text = asdict(declaration.test)
    return {"test": {"reuse": text.pop("reuse"), "text": text}}


def _require_fresh(study: Study, folder: ResultsFolder, declaration: Declaration) -> None:
    require_fresh(study, {TRAINER: _test_text(declaration)}, folder)


def _begin(study: Study, folder: ResultsFolder) -> None:
    """Tell the ledger that scores will be seen, and keep what it says of their text."""
    note(folder)
    if parts_of(study, read_registration(folder) or {}, "test") and not folder.has_sealed(LEDGER):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        folder.seal(LEDGER, open_in_ledger(folder, study, now))
    note(folder, is_begun=True)


def _train(
    study: Study,
    folder: ResultsFolder,
    trainer: Trainer,
    declaration: Declaration,
    by_jobs: ByJobs | None = None,
    *,
    is_tuning: bool = False,
) -> bool:
    """Train what is missing up to the last look; or up to the next one, and return True, where the
    seeds that follow are to be tuned first."""
    _register(study, folder, trainer, declaration)
    if not is_tuning:
        _begin(study, folder)
    while True:
        needed = needed_trials(study, read_looks(folder))
        todo = [trial for trial in needed if not folder.trial(*trial).is_finished]
        if by_jobs is not None and todo:
            by_jobs(study, folder, todo)
        else:
            for _ in _train_these(study, folder, trainer, declaration, todo, is_tuning=is_tuning):
                pass
        if not take_look(study, folder, LOG.info):
            return False
        if study.tunes_anew:
            return True


def _parts(study: Study, todo: Sequence[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Return trials that a trainer is given at once: those whose settings follow from the arm."""
    if study.tunes_anew:
        by_seed = arms_by_seed(todo)
        return [[(arm, seed) for arm in arms] for seed, arms in by_seed.items()]
    return [list(todo)] if todo else []


@runtime_checkable
class InFolder(Protocol):
    """A trainer that writes more than its records: it is told the folder of its trials."""

    def into(self, folder: ResultsFolder) -> Trainer:
        """Return the same, for the trials of a folder."""
        ...


def train_here(
    study: Study, folder: ResultsFolder, trials: Sequence[Trial], **options: Any
) -> Iterator[Trial]:
    """Train those of `trials` that are not finished, in this process, which is a job; yields each
    when it is. A command takes `options`.

    Raises ParibusError where the trainer is not what is registered.
    """
    if study.trainer != COMMAND:
        options = {}
    trainer = find_trainer(study, folder, **options)
    declaration = declared_by(study, trainer)
    there = (read_registration(folder) or {}).get(TRAINER, {})
    here = json.loads(json.dumps(_of_trainer(study, declaration)))
    if differing := [name for name in here if here[name] != there.get(name, here[name])]:
        raise ParibusError(
            f"trainer '{study.trainer}' is not the one that was registered: its {differing[0]} "
            "changed since; restore it, or choose another folder with --results"
        )
    todo = [trial for trial in trials if not folder.trial(*trial).is_finished]
    is_tuning = folder.path.parent.name == TUNING
    yield from _train_these(study, folder, trainer, declaration, todo, is_tuning=is_tuning)


def _train_these(
    study: Study,
    folder: ResultsFolder,
    trainer: Trainer,
    declaration: Declaration,
    todo: Sequence[Trial],
    *,
    is_tuning: bool,
) -> Iterator[Trial]:
    """Let the trainer run trials; yields each when its records are sealed."""
    if isinstance(trainer, InFolder):
        trainer = trainer.into(folder)
    steps = study.stability.steps_needed if study.is_gated and not is_tuning else 0
    for part in _parts(study, todo):
        with contextlib.closing(_asked(study.at(part[0][1]), trainer, part)) as records:
            for trial, record in records:
                _write(study, folder.trial(*trial), declaration, record, steps)
                yield trial


def _job_backend(study: Study, options: dict[str, Any]) -> Any:
    """Return the backend whose jobs run the trainer; None where none does. What the trainer does
    not take is taken out of `options`.

    Raises ParibusError for one that a trainer of the user's own cannot be run by.
    """
    chosen = options.get("backend", "local")
    found = (
        None if chosen == "local" else resolve_name(f"{EXECUTION}.backends:find_backend")(chosen)
    )
    if study.trainer != COMMAND:
        options.pop("backend", None)
    if found is None or found.name == "local":
        return None
    if isinstance(found, resolve_name(f"{EXECUTION}.backends.jobs:JobBackend")):
        if study.trainer == COMMAND:
            options["backend"] = found
        return found
    if study.trainer == COMMAND:
        return None
    raise ParibusError(
        f"a trainer of your own runs in this process, or in jobs of a scheduler; backend "
        f"'{found.name}' has none: choose slurm or ray, or leave --backend out"
    )


def _entered(folder: ResultsFolder, backend: Any) -> contextlib.AbstractContextManager[Any]:
    return resolve_name(f"{EXECUTION}.jobs.entry:entered")(folder, backend or "local")


def _asked(
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
            done = len(todo) - len(left)
            raise ParibusError(
                f"trainer '{study.trainer}' failed after {done} of {len(todo)} trials, in line "
                f"{_line_of(error)}: {type(error).__name__}: {error}"
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


def _line_of(error: BaseException) -> str:
    """Return `file.py:12`, where an error of the user's own code was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _write(
    study: Study,
    folder: TrialFolder,
    declaration: Declaration,
    record: TrialRecord,
    needed: int = 0,
) -> None:
    """Write and seal what a trainer gave of one trial, which has `needed` losses or none.

    Raises ParibusError for the undeclared.
    """
    metrics = _metrics(declaration)
    if 0 < len(record.losses) < needed:
        raise ParibusError(
            f"trial {folder.label}: {len(record.losses)} losses are too few to judge stability, "
            f"which takes {needed}; give more, give none, or lower stability.median_steps"
        )
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
        "setting": study.setting(folder.arm, folder.seed).model_dump(mode="json"),
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
