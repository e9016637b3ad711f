"""Readers of per-item evaluation results: lm_eval, lighteval and inspect_ai."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.digests import flatten
from paribus.errors import ParibusError
from paribus.readers.facts import EVALUATION, HARNESS, SETS, find_kind
from paribus.readers.port import Run, SkippedError, Source, as_dict, is_number, reader, seed_in
from paribus.untrusted_io import RECORD_BYTES, is_regular, regular_path

HASH = 16  # characters of a document's hash that name it
DATED = re.compile(r"(_\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl?$")
SAMPLES = re.compile(rf"samples_(.+){DATED.pattern}")
LISTED = re.compile(r"(\w+)=([^,]*)")  # settings in a text such as pretrained=x,dtype=float16
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of a function
VERSIONS = re.compile(rb',none"|"lm_eval_version"|"versions"|"config_general"')
TABLE = re.compile(rb'"results"\s*:\s*\{')
# Values by task in a file of results, and the facts that they are.
BY_TASK = {"task_hashes": "task_hash", "versions": "task_version", "n-shot": "n_shot"}
BY_TASK |= {"n-samples": "n_samples", "summary_tasks": "prompt_hash"}  # the latter of lighteval
NO_METRICS = ("doc_id", "target", "filter")  # of a line of samples that does not list its metrics
# Of inspect_ai: correct, incorrect, partial, none.
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def _is_lm_eval(source: Source) -> bool:
    is_table = source.name.endswith(".json") and source.has(TABLE) and source.has(VERSIONS)
    return is_table or (SAMPLES.fullmatch(source.name) is not None and source.has(b'"doc_id"'))


@reader(
    "lm-eval",
    says="results_<date>.json from lm_eval, with its samples_*.jsonl, or from lighteval",
    detects=_is_lm_eval,
)
def lm_eval(source: Source) -> Iterator[Run]:
    """Yield the run, with one score for each task and metric, excluding averages over tasks.

    Item scores come from the sample files with the same date in the same folder. Items are keyed by
    doc_id and doc_hash, so that only identical documents are paired.
    """
    if SAMPLES.fullmatch(source.name):
        raise SkippedError("its run is read from results_<date>.json beside it; pass that file")
    run, content = Run(), as_dict(source.json())
    for task, metrics in as_dict(content.get("results")).items():
        for name, value in as_dict(metrics).items():
            is_other = "stderr" in name or name == "sample_len" or task == "all"
            if is_number(value) and not is_other:
                run.scores[f"{task}/{name.removesuffix(',none')}"] = float(value)
        if (shots := task.rpartition(":")[2]).isdecimal():  # as lighteval has them
            _add_settings(run, {"n_shot": int(shots)}, task)
    config = as_dict(content.pop("config", None) or content.get("config_general"))
    run.state(arm=content.get("model_name") or config.get("model_args") or config.get("model_name"))
    own = as_dict(content.get("configs")) | as_dict(content.get("config_tasks"))
    for task, settings in own.items():  # the metadata of newer versions name the model
        shots = {"num_fewshot": None} if task in as_dict(content.get("n-shot")) else {}
        hidden = dict.fromkeys(("metadata", "task_alias")) | shots
        _add_settings(run, as_dict(settings) | hidden, task)
    for name, fact in BY_TASK.items():
        for task, value in as_dict(content.get(name)).items():
            if isinstance(value, dict):
                hashes = as_dict(value.get("hashes"))
                value = value.get("effective", hashes.get("hash_full_prompts"))
            _add_settings(run, {fact: value}, task)
    _add_to_groups(run, as_dict(content.get("group_subtasks")))
    _add_settings(run, config)
    _add_settings(run, {key: own for key, own in content.items() if not isinstance(own, dict)})
    if date := DATED.search(source.name):
        for file in sorted(Path(source.path).parent.glob(f"samples_*{date[1]}.jsonl")):
            if (match := SAMPLES.fullmatch(file.name)) and is_regular(file):
                _add_items(run, Source(str(file)), match[1])
    if run.scores:
        yield run


def _add_to_groups(run: Run, groups: dict[str, list[str]]) -> None:
    """Add the settings of subtasks as those of their groups, whose scores are means over them."""

    def tasks_of(group: str) -> list[str]:
        return [task for own in groups.get(group) or () for task in (own, *tasks_of(own))]

    members = {group: {*tasks_of(group)} for group in groups}
    for name, value in list(run.facts.items()):
        key, _, task = name.rpartition("/")
        for group in (group for group, tasks in members.items() if task in tasks):
            run.facts[f"{key}.{task}/{group}"] = value


def _add_settings(run: Run, settings: Any, task: str | None = None) -> None:
    """Add the settings of an evaluation as facts, except times, identifiers and absolute paths.

    `evaluation:KEY` changes what is measured, of one task if `/TASK` follows. `harness:KEY` only
    says how that is run. If `task` is None, the kind of each setting follows from its name.
    """
    for key, value in flatten(as_dict(settings)).items():
        if isinstance(value, str) and key.endswith("args") and LISTED.match(value):
            _add_settings(run, {key: dict(LISTED.findall(value))}, task)
            continue
        words, kind = {*re.findall("[a-z]+", key.lower())}, find_kind(key)
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        text = ADDRESS.sub("", text)
        is_off = not value and not is_number(value)
        if is_off or words & SETS["not_compared"] or text.startswith(("/", "~")):
            continue
        is_evaluated = task is not None or "evaluation" in map(find_kind, key.split("."))
        if is_evaluated and not words & SETS["harness"]:
            name = EVALUATION + (f"{key}/{task}" if task else key)
        elif key.startswith("model") and kind != "setting":
            name = key
        elif kind in ("identifier", "time") or "\n" in text:
            continue
        else:
            name = HARNESS + key
        run.state(**{name: value if is_number(value) else text})


def _add_items(run: Run, samples: Source, task: str) -> None:
    for sample in samples.objects():
        item = f"{sample['doc_id']}:{str(sample.get('doc_hash', ''))[:HASH]}"
        metrics = sample.get("metrics")
        if not isinstance(metrics, list):
            metrics = [key for key in sample if key not in NO_METRICS]
        for metric in metrics:
            if is_number(value := sample.get(metric)):
                name = f"{task}/{metric},{sample.get('filter', 'none')}".removesuffix(",none")
                values = run.items.setdefault(name, {})
                if item in values:
                    raise ParibusError(f"{samples.path} has document {item} twice; remove one")
                values[item] = float(value)


@reader(
    "inspect-ai",
    says=".eval logs from inspect_ai",
    detects=lambda source: source.name.endswith(".eval") and source.head.startswith(b"PK"),
)
def inspect_ai(source: Source) -> Iterator[Run]:
    """Yield the run in a log, with its metrics, and item scores averaged over epochs."""
    with zipfile.ZipFile(regular_path(source.path, RECORD_BYTES)) as archive:
        header, samples = (
            json.loads(archive.open(name).read(RECORD_BYTES))
            for name in ("header.json", "summaries.json")
        )
    if header.get("status") != "success":
        why = f"{source.path}: the evaluation has status {header.get('status')}; complete it"
        raise ParibusError(why, code="unfinished")
    run, evaluation = Run(), as_dict(header.get("eval"))
    for scorer in header["results"]["scores"]:
        values: dict[str, list[float]] = {}
        for sample in samples:
            grade = as_dict(as_dict(sample.get("scores")).get(scorer["name"])).get("value")
            if is_number(number := GRADES.get(grade) if isinstance(grade, str) else grade):
                values.setdefault(str(sample.get("id")), []).append(number)
        items = {item: math.fsum(own) / len(own) for item, own in values.items()}
        for name, metric in scorer["metrics"].items():
            if is_number(metric["value"]) and "stderr" not in name:
                score = f"{scorer['name']}/{name}"
                run.scores[score] = float(metric["value"])
                run.items |= {score: dict(items)} if items else {}
    model, plan = str(evaluation.get("model")), as_dict(header.get("plan"))
    run.state(model=model, seed=seed_in(model))
    config = as_dict(evaluation.pop("config", None))
    config = {key: own for key, own in config.items() if not key.startswith("max_")}  # at once
    if config.get("epochs_reducer") in (None, ["mean"]):  # a mean is one of any number
        config.pop("epochs_reducer", None)
        _add_settings(run, {"epochs": config.pop("epochs", None)})
    generation = plan.get("config") or evaluation.pop("model_generate_config", None)
    asked = ("task", "task_version", "task_args", "solver", "solver_args", "dataset", "scorers")
    own = {key: evaluation.pop(key, None) for key in asked} | {"steps": plan.get("steps")}
    _add_settings(run, own | {"config": config, "generate_config": generation}, "")
    _add_settings(run, evaluation)
    run.decides = next(iter(run.scores), "")
    if run.scores:
        yield run
