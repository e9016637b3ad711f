"""A trainer and its declaration of metrics and controls, checked before the first trial."""

from __future__ import annotations

import traceback
from dataclasses import asdict, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
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

OWN_CONTROLS = ("setting", "repeatable")  # every study has them
COUNT = "count"


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
    try:
        return trainer()
    except Exception as error:
        raise ParibusError(
            f"{where}: {type(error).__name__}: {error}; it is made without arguments"
        ) from error


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
        raise ParibusError(f"{where} {declaration!r:.60}; return a paribus.extend.Declaration")
    declaration = replace(
        declaration,
        metrics=tuple(declaration.metrics),
        by_item=frozenset(declaration.by_item),
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
    if declaration.test is not None:
        _require_text(declaration.test, where)
    for name, keys in declaration.controls.items():
        if name in OWN_CONTROLS:
            raise ParibusError(
                f"{where} a control '{name}', which every study has; give it another name"
            )
        if isinstance(keys, str):
            raise ParibusError(
                f"{where} the keys of control '{name}' as one text; write ({keys!r},)"
            )
    return declaration


def _require_text(text: Any, where: str) -> None:
    """Raise ParibusError unless a trainer describes its test text by digests."""
    try:
        if not isinstance(text, TestText) or text.reuse not in ("declare", "forbid"):
            raise ValueError("it is a paribus.extend.TestText, with reuse 'declare' or 'forbid'")
        TextPart(role="test", **{k: v for k, v in asdict(text).items() if k != "reuse"})
    except ValueError as error:
        problem = explain(error) if isinstance(error, ValidationError) else error
        raise ParibusError(
            f"{where} the test text {text!r:.60}: {problem}; a text is known by its SHA-256, 64 "
            "digits, and its place by bytes"
        ) from None


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
