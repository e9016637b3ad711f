"""Readers of per-item evaluation results: lm_eval, lighteval, OpenAI evals, inspect_ai."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from paribus.errors import ParibusError
from paribus.readers.port import Run, SkippedError, Source, as_dict, is_number, reader, seed_in
from paribus.untrusted_io import RECORD_BYTES, is_regular, regular_path

HASH = 16  # characters of a document's hash that name it
DATED = re.compile(r"(_\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl?$")
SAMPLES = re.compile(rf"samples_(.+){DATED.pattern}")
OF_TASKS = {"limit": "limit", "max_samples": "limit", "batch_size": "eval_batch_size"}
VERSIONS = re.compile(rb',none"|"lm_eval_version"|"versions"')
TABLE = re.compile(rb'"results"\s*:\s*\{')
NO_METRICS = ("doc_id", "target", "filter")  # of a line of samples that does not list its metrics
# Of inspect_ai: correct, incorrect, partial, none.
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def _is_lm_eval(source: Source) -> bool:
    if SAMPLES.fullmatch(source.name):
        return source.has(b'"doc_id"')
    is_said = source.name.endswith(".json") and source.has(TABLE) and source.has(VERSIONS)
    return is_said and not source.has(b'"config_general"')


def _read_results(source: Source) -> Iterator[Run]:
    """Yield the run, with one score for each task and metric; averages over tasks are ignored.

    Item scores come from the sample files with the same date in the same folder. Items are keyed by
    doc_id and doc_hash, so that only identical documents are paired. Result files of lm_eval
    versions before 0.4 are supported. A sample file itself is skipped, because it is read together
    with its result file.
    """
    if SAMPLES.fullmatch(source.name):
        raise SkippedError("it is read with results_<date>.json in the same folder; pass that file")
    run, content = Run(), as_dict(source.json())
    for task, metrics in as_dict(content.get("results")).items():
        for name, value in as_dict(metrics).items():
            is_other = "stderr" in name or name == "sample_len" or task == "all"
            if is_number(value) and not is_other:
                run.scores[f"{task}/{name.removesuffix(',none')}"] = float(value)
        if (shots := task.rpartition(":")[2]).isdecimal():  # as lighteval has them
            run.facts[f"n_shot/{task}"] = float(shots)
    config = as_dict(content.get("config") or content.get("config_general"))
    run.state(
        arm=content.get("model_name") or config.get("model_args") or config.get("model_name"),
        model_args=config.get("model_args"),
        lm_eval_version=content.get("lm_eval_version"),
        evaluation_seed=config.get("random_seed"),
    )
    sizes = as_dict(content.get("n-samples")).items()
    for fact, values in (
        ("task_hash", content.get("task_hashes")),
        ("task_version", content.get("versions")),
        ("n_shot", content.get("n-shot")),
        ("n_samples", {task: as_dict(size).get("effective") for task, size in sizes}),
    ):
        run.state(**{f"{fact}/{task}": value for task, value in as_dict(values).items()})
    for key, fact in OF_TASKS.items():
        if key in config:
            run.facts[fact] = str(config[key])
    if date := DATED.search(source.name):
        for file in sorted(Path(source.path).parent.glob(f"samples_*{date[1]}.jsonl")):
            if (match := SAMPLES.fullmatch(file.name)) and is_regular(file):
                _add_items(run, Source(str(file)), match[1])
    if run.scores:
        yield run


lm_eval = reader(
    "lm-eval", says="results_<date>.json, with its samples_*.jsonl", detects=_is_lm_eval
)(_read_results)
lighteval = reader(
    "lighteval",
    says="results_<date>.json from lighteval",
    detects=lambda source: source.name.endswith(".json") and source.has(b'"config_general"'),
)(_read_results)


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
                    why = f"{samples.path} contains document {item} twice; remove the duplicate"
                    raise ParibusError(why)
                values[item] = float(value)


@reader(
    "openai-evals",
    says="OpenAI evals records, one run per file",
    detects=lambda source: source.header.startswith('{"spec"'),
    score=("final_report.accuracy",),
)
def openai_evals(source: Source) -> Iterator[Run]:
    """Yield the run, with scores from `final_report` and item scores from `data.correct`."""
    run = Run()
    for record in source.objects():
        for name, value in as_dict(record.get("final_report")).items():
            if is_number(value):
                run.scores[f"final_report.{name}"] = float(value)
        correct = as_dict(record.get("data")).get("correct")
        if isinstance(correct, bool):
            items = run.items.setdefault("final_report.accuracy", {})
            items[str(record.get("sample_id"))] = float(correct)
        spec = as_dict(record.get("spec"))
        run.state(eval_set=spec.get("eval_name"), eval_split=spec.get("split"))
    if not run.scores:
        raise ParibusError(f"{source.path} has no final_report; wait until the run has ended")
    yield run


@reader(
    "inspect-ai",
    says=".eval logs from inspect_ai",
    detects=lambda source: source.name.endswith(".eval") and source.head.startswith(b"PK"),
)
def inspect_ai(source: Source) -> Iterator[Run]:
    """Yield the run in a log, with its metrics, and item scores averaged over epochs.

    Raises ParibusError if the evaluation did not finish successfully.
    """
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
    config, model = as_dict(evaluation.get("config")), evaluation.get("model")
    run.state(model=model, eval_set=evaluation.get("task"), seed=seed_in(str(model)))
    run.state(limit=config.get("limit"), epochs=config.get("epochs"))
    run.decides = next(iter(run.scores), "")
    if run.scores:
        yield run
