"""A trainer and what it declares: its metrics and controls, checked before the first trial."""

from __future__ import annotations

import traceback
from dataclasses import asdict, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from paribus.errors import ParibusError, nearest
from paribus.ledger import TextPart
from paribus.metric import ItemSums, Metric, by_name
from paribus.results import ResultsFolder
from paribus.study import Study
from paribus.study.custom_code import measuring_digests
from paribus.study.importing import load_own
from paribus.study.trainer import BUILT_IN, COMMAND, RUNS, Declaration, TestText, Trainer
from paribus.study.trust import require_trust

if TYPE_CHECKING:
    from paribus.runs.worker import Context

OWN_CONTROLS = ("setting", "repeatable")  # of every study
COUNT = "count"


def find_trainer(
    study: Study, folder: ResultsFolder, context: Context | None = None, **options: Any
) -> Trainer:
    """Return the trainer that `study` names; code of the user's own is run.

    Trainers that ship are called with the results folder, the `context` of a child process, and
    `options`. Raises ParibusError, also for options that the trainer does not take.
    """
    require_trust(study)
    if study.trainer == COMMAND:
        return resolve_name(BUILT_IN[COMMAND].trainer)(folder.path, context=context, **options)
    if study.trainer == RUNS:
        return resolve_name(BUILT_IN[RUNS].trainer)(folder.path, **options)
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
            f"trainer '{study.trainer}' declares nothing: line {line_of(error)}: "
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


def metrics_of(declaration: Declaration) -> dict[str, Metric]:
    """Return what is declared, as records have it: read at the end, over items where it is."""
    return {
        metric.name: replace(
            metric,
            record="evaluation",
            items=ItemSums(metric.name, COUNT) if metric.name in declaration.by_item else "",
        )
        for metric in declaration.metrics
    }


def registered_trainer(study: Study, declaration: Declaration) -> dict[str, Any]:
    """Return what is registered of a trainer."""
    return {
        "controls": {name: list(keys) for name, keys in declaration.controls.items()},
        "must_be_finite": declaration.must_be_finite,
        "sources": measuring_digests(
            [study.trainer] if ":" in study.trainer else [], "trainer", study.folder
        ),
        **declaration.about,
    } | text_of(declaration)


def text_of(declaration: Declaration) -> dict[str, Any]:
    """Return what is registered of the text that scores are of; nothing where nothing is said."""
    if declaration.test is None:
        return {}
    text = asdict(declaration.test)
    return {"test": {"reuse": text.pop("reuse"), "text": text}}


def line_of(error: BaseException) -> str:
    """Return `file.py:12`, where an error of the user's own code was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
