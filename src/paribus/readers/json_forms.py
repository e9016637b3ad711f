"""Forms of JSON: the Hugging Face Trainer, lighteval, OpenAI evals and inspect_ai."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from typing import Any

from paribus.errors import ParibusError
from paribus.readers.port import (
    Run,
    Source,
    as_float,
    is_number,
    json_part,
    mean,
    reader,
    seed_fact,
)
from paribus.untrusted_io import RECORD_BYTES, parse_json, regular_path

# What is logged beside scores, by the end of its name.
COSTS = ("runtime", "per_second", "learning_rate", "grad_norm", "total_flos", "epoch", "step")
# Of inspect_ai: correct, incorrect, partial, none.
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def _is_trainer_state(source: Source) -> bool:
    return source.name.endswith("trainer_state.json") and b"{" in source.head


@reader(
    "hugging-face", says="trainer_state.json of the Hugging Face Trainer", detects=_is_trainer_state
)
def hugging_face(source: Source) -> Iterator[Run]:
    """Yield the run: its log_history by step."""
    state, history = json_part(source, "log_history", list)
    run, norms = Run(""), []
    names_of: dict[tuple[str, ...], list[str]] = {}  # scores, by the names that an entry has
    for entry in history:
        step = entry.get("step") if isinstance(entry, dict) else None
        if not is_number(step):
            continue
        at, names = as_float(step), tuple(entry)
        if names not in names_of:
            names_of[names] = [name for name in names if not name.endswith(COSTS)]
        for name in names_of[names]:
            if is_number(value := entry[name]):
                run.log(name, at, as_float(value))
        if is_number(norm := entry.get("grad_norm")):
            norms.append((at, as_float(norm)))
        run.state(train_seconds=entry.get("train_runtime"))
    run.finish(norms)
    for fact, key in (("steps", "global_step"), ("planned_steps", "max_steps")):
        if is_number(state.get(key)) and math.isfinite(as_float(state[key])):
            run.facts[fact] = as_float(state[key])
    kept = ("train_batch_size", "num_train_epochs", "best_metric")
    run.state(**{key: state.get(key) for key in kept})
    run.facts |= seed_fact(source.path)
    run.decides = "eval_loss" if "eval_loss" in run.scores else "loss"
    if run.curves:
        yield run


def _is_lighteval(source: Source) -> bool:
    return source.name.endswith(".json") and source.has(b'"config_general"')


@reader("lighteval", says="results_<date>.json of lighteval", detects=_is_lighteval)
def lighteval(source: Source) -> Iterator[Run]:
    """Yield the run: a score for each task and metric; the row `all` averages the others."""
    state, results = json_part(source, "results", dict)
    run, general = Run(""), _table(state.get("config_general"))
    for task, metrics in results.items():
        if task == "all" or not isinstance(metrics, dict):
            continue
        run.scores |= {
            f"{task}/{name}": as_float(value)
            for name, value in metrics.items()
            if is_number(value) and not name.endswith("_stderr")
        }
        if task.rpartition(":")[2].isdecimal():
            run.facts[f"n_shot/{task}"] = float(task.rpartition(":")[2])
    run.state(arm=general.get("model_name"), limit=general.get("max_samples"))
    run.facts |= seed_fact(source.path)
    if run.scores:
        yield run


def _is_openai_evals(source: Source) -> bool:
    return source.header.startswith('{"spec"')


@reader("openai-evals", says="records of OpenAI evals, one run a file", detects=_is_openai_evals)
def openai_evals(source: Source) -> Iterator[Run]:
    """Yield the run: `final_report` is its score, and `data.correct` its items by sample."""
    run = Run("")
    items: dict[str, float] = {}
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        where = f"{source.path}, line {number}"
        record = parse_json(line, where, "is it whole?", finite=False)
        if not isinstance(record, dict):
            raise ParibusError(f"{where} is not a JSON object")
        for name, value in _table(record.get("final_report")).items():
            if is_number(value):
                run.scores[f"final_report.{name}"] = as_float(value)
        correct = _table(record.get("data")).get("correct")
        if isinstance(correct, bool):
            items[str(record.get("sample_id"))] = float(correct)
        spec = _table(record.get("spec"))
        run.state(eval_set=spec.get("eval_name"), eval_split=spec.get("split"))
    if not run.scores:
        raise ParibusError(f"{source.path} has no final_report: the evaluation has not ended")
    name = "final_report.accuracy"
    if items and math.isclose(mean(items.values()), run.scores.get(name, math.nan)):
        run.items[name] = items
    run.facts |= seed_fact(source.path)
    run.decides = name if name in run.scores else ""
    yield run


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_inspect(source: Source) -> bool:
    return source.name.endswith(".eval") and source.head.startswith(b"PK")


@reader("inspect-ai", says=".eval logs of inspect_ai", detects=_is_inspect)
def inspect_ai(source: Source) -> Iterator[Run]:
    """Yield the run of a log: its metrics, and the items of each scorer, means over epochs.

    Raises ParibusError for an evaluation that did not end.
    """
    try:
        with zipfile.ZipFile(regular_path(source.path, RECORD_BYTES)) as archive:
            header, summaries = (_member(archive, name) for name in ("header", "summaries"))
    except (zipfile.BadZipFile, KeyError, OSError, ValueError, RuntimeError) as error:
        raise ParibusError(
            f"{source.path} is not a log of inspect_ai, or is damaged: {error}"
        ) from None
    if header.get("status") != "success":
        raise ParibusError(
            f"{source.path}: the evaluation is {header.get('status')}, and its scores are of some "
            "samples alone; run it to its end, or leave it out"
        )
    run, header_eval = Run(""), _table(header.get("eval"))
    for scorer in _table(header.get("results")).get("scores") or ():
        for name, metric in _table(_table(scorer).get("metrics")).items():
            value = _table(metric).get("value")
            if is_number(value) and "stderr" not in name:
                run.scores[f"{scorer.get('name')}/{name}"] = as_float(value)
    for name in run.scores:
        by_item = _inspect_items(summaries, name.partition("/")[0])
        if by_item and math.isclose(mean(by_item.values()), run.scores[name], abs_tol=1e-9):
            run.items[name] = by_item
    config = _table(header_eval.get("config"))
    run.state(model=header_eval.get("model"), eval_set=header_eval.get("task"))
    run.state(limit=config.get("limit"), epochs=config.get("epochs"))
    run.facts |= seed_fact(source.path) or seed_fact(str(header_eval.get("model", "")))
    run.decides = next(iter(run.scores), "")
    if run.scores:
        yield run


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    """Return the last member of a name, as one may be written again."""
    info = [member for member in archive.infolist() if member.filename == f"{name}.json"]
    if not info or info[-1].file_size > RECORD_BYTES:
        raise KeyError(f"no {name}.json")
    return json.loads(archive.read(info[-1]))


def _inspect_items(summaries: Any, scorer: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for sample in summaries if isinstance(summaries, list) else ():
        value = _table(_table(_table(sample).get("scores")).get(scorer)).get("value")
        number = GRADES.get(value) if isinstance(value, str) else value
        if is_number(number):
            values.setdefault(str(sample.get("id")), []).append(as_float(number))
    return {item: mean(own) for item, own in values.items()}
