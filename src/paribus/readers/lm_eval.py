"""lm_eval: `results_<date>.json`, with the items of `samples_<task>_<date>.jsonl` beside it.

Files of results before version 0.4, and those named by a user, are read as well.

An item is named by doc_id and doc_hash, so that only the same document pairs with itself.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.readers.port import (
    Run,
    SkippedError,
    Source,
    as_float,
    is_number,
    json_part,
    mean,
    reader,
    seed_fact,
)
from paribus.untrusted_io import is_regular, parse_json

TABLE = re.compile(rb'"results"\s*:\s*\{')
HASH = 16  # characters of a document's hash that name it
DATED = r"_(\d{4}-\d\d-\d\dT[\d.:-]+)"
SAMPLES = re.compile(rf"samples_(.+){DATED}\.jsonl")
RESULTS = re.compile(rf".+{DATED}\.json")
# What a line of samples says beside its metrics, in versions that do not list them.
ABOUT = ("doc_id", "target", "filter")


def _detects(source: Source) -> bool:
    return (
        source.name.endswith(".json")
        and bool(TABLE.search(source.head))
        and not source.has(b'"config_general"')
        and any(map(source.has, (b',none"', b'"lm_eval_version"', b'"versions"')))
    )


@reader("lm-eval", says="results_<date>.json, with its samples_*.jsonl", detects=_detects)
def lm_eval(source: Source) -> Iterator[Run]:
    """Yield the run: a score for each task and metric, and their items."""
    content, results = json_part(source, "results", dict)
    run = Run("")
    for task, metrics in results.items():
        for key, value in metrics.items() if isinstance(metrics, dict) else ():
            if is_number(value) and "stderr" not in key and key != "sample_len":
                run.scores[_score(task, *key.split(",", 1))] = as_float(value)
    config = content.get("config")
    config = config if isinstance(config, dict) else {}
    run.state(
        arm=content.get("model_name") or config.get("model_args"),
        model_args=config.get("model_args"),
        lm_eval_version=content.get("lm_eval_version"),
        evaluation_seed=config.get("random_seed"),
    )
    for fact, values in (
        ("task_hash", content.get("task_hashes")),
        ("task_version", content.get("versions")),
        ("n_shot", content.get("n-shot")),
        ("n_samples", _effective(content.get("n-samples"))),
    ):
        if isinstance(values, dict):
            run.state(**{f"{fact}/{task}": value for task, value in values.items()})
    run.facts |= {
        fact: str(config[key])
        for fact, key in (("limit", "limit"), ("eval_batch_size", "batch_size"))
        if key in config
    }
    run.facts |= seed_fact(source.path)
    for file, task in _samples_beside(source):
        _add_items(run, Source(file), task)
    if run.scores:
        yield run


def _effective(samples: Any) -> dict[str, Any]:
    """Return by task how many documents were asked."""
    if not isinstance(samples, dict):
        return {}
    return {task: n.get("effective") for task, n in samples.items() if isinstance(n, dict)}


def _is_samples(source: Source) -> bool:
    return bool(SAMPLES.fullmatch(source.name)) and b'"doc_id"' in source.head


@reader("lm-eval-samples", says="samples_<task>_<date>.jsonl alone", detects=_is_samples)
def lm_eval_samples(source: Source) -> Iterator[Run]:
    """Yield the run that the samples of one task are of, where its results are not beside them."""
    match = SAMPLES.fullmatch(source.name)
    task, date = match.groups() if match else (source.name, "")
    for file in Path(source.path).parent.glob(f"*_{glob.escape(date)}.json"):
        if date and is_regular(file):
            raise SkippedError(f"it is read with {file.name}, which is to be given")
    run = Run("")
    _add_items(run, source, task)
    run.scores |= {name: mean(items.values()) for name, items in run.items.items()}
    if run.items:
        yield run


def _score(task: str, metric: str, filtered: str = "none") -> str:
    return f"{task}/{metric}" if filtered == "none" else f"{task}/{metric},{filtered}"


def _samples_beside(source: Source) -> list[tuple[str, str]]:
    """Return (file, task) of every samples file with the same date."""
    date = RESULTS.fullmatch(source.name)
    if not date:
        return []
    files = []
    for file in sorted(Path(source.path).parent.iterdir()):
        match = SAMPLES.fullmatch(file.name)
        if match and match[2] == date[1] and is_regular(file):
            files.append((str(file), match[1]))
    return files


def _add_items(run: Run, samples: Source, task: str) -> None:
    for number, line in enumerate(samples.lines(), start=1):
        if not line.strip():
            continue
        where = f"{samples.path}, line {number}"
        sample = parse_json(line, where, "is it whole?", finite=False)
        if not isinstance(sample, dict) or "doc_id" not in sample:
            raise ParibusError(f"{where} is not a sample: an object with a doc_id is expected")
        item = f"{sample['doc_id']}:{str(sample.get('doc_hash', ''))[:HASH]}"
        filtered = str(sample.get("filter", "none"))
        for metric in _metrics(sample):
            if is_number(sample.get(metric)):
                values = run.items.setdefault(_score(task, metric, filtered), {})
                if item in values:
                    raise ParibusError(f"{where}: document {item} is there twice")
                values[item] = as_float(sample[metric])


def _metrics(sample: dict[str, Any]) -> list[str]:
    listed = sample.get("metrics")
    if isinstance(listed, list):
        return [name for name in listed if isinstance(name, str)]
    return [key for key in sample if key not in ABOUT]
