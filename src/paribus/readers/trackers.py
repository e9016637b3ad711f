"""Readers of files from the Hugging Face Trainer, MLflow, trackio, TensorBoard and W&B charts."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paribus.digests import flatten
from paribus.errors import ParibusError
from paribus.readers import port
from paribus.readers.facts import WORDS
from paribus.readers.port import Run, Source, Value, as_dict, is_number, reader
from paribus.readers.tables import Column, columns_of, numbers_of, read_table
from paribus.untrusted_io import is_regular, open_regular, read_text, regular_path

# What is logged beside scores, by the end of its name.
COSTS = ("runtime", "per_second", "learning_rate", "total_flos", "epoch", "step")
KEPT = {"global_step": "steps", "max_steps": "planned_steps"}
KEPT |= {key: key for key in ("train_batch_size", "num_train_epochs", "best_metric")}
STATUS = {"1": "running", "2": "scheduled", "4": "failed", "5": "killed"}  # 3: finished
DT_FLOAT = 1  # the type of a tensor
BETWEEN, LEAST, LARGEST = " - ", "__MIN", "__MAX"  # a run and its metric; ends of a point
DECIDES = ("eval_loss", "val_loss", "eval/loss", "val/loss", "loss")  # the first of a run's
TAGGED = re.compile(r"(?:run-)?(?P<run>.+?)-tag-(?P<tag>.+?)\.csv")


@reader(
    "hugging-face",
    says="trainer_state.json from the Hugging Face Trainer",
    detects=lambda source: source.name.endswith("trainer_state.json") and b"{" in source.head,
    score=("eval_loss", "loss"),
)
def hugging_face(source: Source) -> Iterator[Run]:
    """Yield the run, with the curves in `log_history`."""
    run, state = Run(), as_dict(source.json())
    for entry in map(as_dict, state.get("log_history") or ()):
        if is_number(step := entry.get("step")):
            for name, value in entry.items():
                if is_number(value) and not name.endswith(COSTS):
                    run.log(name, step, value)
            run.state(train_seconds=entry.get("train_runtime"))
    run.state(**{fact: state.get(key) for key, fact in KEPT.items()})
    control = as_dict(as_dict(state.get("stateful_callbacks")).get("TrainerControl"))
    if "train_seconds" in run.facts or as_dict(control.get("args")).get("should_training_stop"):
        run.facts.pop(port.PLANNED, None)  # a callback may have stopped it before
    if run.curves:
        yield run


@reader(
    "mlflow",
    says="MLflow's mlruns/, one folder per run",
    detects=lambda source: (
        source.name == "meta.yaml" and source.has(b"lifecycle_stage:") and source.has(b"run_id:")
    ),
)
def mlflow(source: Source) -> Iterator[Run]:
    """Yield the run in a folder, with metrics as curves, and parameters and tags as facts."""
    home = Path(source.path).parent
    lines = (line.partition(":") for line in source.head.decode("utf-8", "replace").splitlines())
    meta = {key.strip(): value.strip().strip("'\"") for key, _, value in lines}
    if meta.get("lifecycle_stage") == "deleted":
        raise port.SkippedError("the run was deleted")
    run = Run(facts={"run_id": meta.get("run_id", home.name)})
    run.state(name=meta.get("run_name"))
    run.state(**{port.NOT_FINISHED: STATUS.get(meta.get("status", ""))})
    for kind, prefix in (("params", ""), ("tags", "tags."), ("metrics", "")):
        for file in filter(is_regular, sorted((home / kind).rglob("*"))):
            name, text = file.relative_to(home / kind).as_posix(), read_text(file)
            if kind != "metrics":
                run.facts[prefix + name] = port.as_value(text.strip())
                continue
            rows = [line.split()[:3] for line in text.splitlines()]
            time, value, step = np.array(rows, float).reshape(-1, 3).T
            # As in MLflow the largest by (step, time, value) counts, and NaN is the least.
            order = np.lexsort([np.nan_to_num(value, nan=-math.inf), time, step])
            run.curves[name] = np.stack([step, value], axis=1)[order]
    yield run


@reader(
    "trackio",
    says="a trackio project, an SQLite file",
    detects=lambda s: s.head.startswith(b"SQLite format 3\0") and s.has(b"metrics"),
    score=DECIDES,
)
def trackio(source: Source) -> Iterator[Run]:
    """Yield the runs in a trackio project, with metrics as curves and configurations as facts.

    Runs with equal names differ in `run_id`, which projects before April 2026 lack.
    """
    path = Path(regular_path(source.path)).absolute()
    runs: dict[str, Run] = {}
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
        names = {
            table: {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            for table in ("metrics", "configs")
        }
        key = "run_id" if "run_id" in names["metrics"] else "run_name"
        rows = f"SELECT {key}, run_name, step, metrics FROM metrics ORDER BY timestamp, id"
        for own, name, step, text in database.execute(rows):
            run = runs.setdefault(own, Run(facts=_facts(name)))
            for metric, value in flatten(as_dict(json.loads(text))).items():
                number = port.as_number(value)  # it writes "NaN" and "Infinity"
                if number is not None and is_number(step):
                    run.log(metric, step, number)
        configs = f"SELECT {key}, config FROM configs"
        for own, text in database.execute(configs) if key in names["configs"] else ():
            if own in runs:  # a run that failed at once has logged nothing
                runs[own].state(**flatten({"config": as_dict(json.loads(text))}))
    yield from (run for run in runs.values() if run.curves)


@reader(
    "wandb-chart",
    says="a Weights & Biases chart exported as CSV",
    detects=lambda source: LEAST in source.header and BETWEEN in source.header,
)
def wandb_chart(source: Source) -> Iterator[Run]:
    """Yield a run for each curve in the chart.

    Its columns are `Step`, `base-s1 - val/loss`, `base-s1 - val/loss__MIN` and `...__MAX`.
    """
    data = read_table(source)
    step, columns = data.column_names[0], columns_of(data)
    if len(columns) < data.num_columns:
        why = "two runs have the same name; export the table of runs instead"
        raise ParibusError(why, code="ambiguous")
    for column in columns:
        name, _, metric = column.rpartition(BETWEEN)
        if not name or not {column + LEAST, column + LARGEST} <= columns.keys():
            continue
        ends = [_curve(columns, step, column + end)[-1:, 1] for end in (LEAST, LARGEST)]
        if not np.array_equal(*ends, equal_nan=True):
            why = f"'{column}' ends with a mean over runs or steps; export the table of runs"
            raise ParibusError(why, code="incomparable")
        if len(curve := _curve(columns, step, column)):
            yield Run(facts=_facts(name), curves={metric: curve}, is_row=True)


def _curve(columns: dict[str, Column], *names: str) -> np.ndarray:
    """Return the curve [points, 2] from the names of a step column and a value column."""
    steps, values = (numbers_of(columns[name], name, name) for name in names)
    rows = ~values.missing & np.isfinite(steps.values)
    return np.stack([steps.values[rows], values.values[rows]], axis=1)


def _facts(name: str) -> dict[str, Value]:
    """Return the arm and the seed from the name of a run, such as `base-s1` or `base seed 1`."""
    arm, seed = port.split_seed(name)
    return {"run": name, "arm": arm} | seed


@reader(
    "tensorboard-csv",
    says="a TensorBoard chart exported as CSV",
    detects=lambda source: source.header.strip() == "Wall time,Step,Value",
    score=DECIDES,
)
def tensorboard_csv(source: Source) -> Iterator[Run]:
    """Yield the run in an exported TensorBoard CSV, named as in `run-<run>-tag-<tag>.csv`."""
    # The name of any other file is the tag, if it contains a score such as `loss`, or else the run.
    stem = source.name.rpartition(".")[0]
    is_tag = not {*re.findall("[a-z]+", stem.lower())}.isdisjoint(WORDS["lower"] + WORDS["higher"])
    match = TAGGED.fullmatch(source.name)
    name, tag = match.groups() if match else (".", stem) if is_tag else (stem, "Value")
    run = Run(facts={} if name == "." else _facts(name), is_row=True)
    if len(curve := _curve(columns_of(read_table(source)), "Step", "Value")):
        run.curves = {"Value" if "Value" in source.scores else tag: curve}
        yield run


@reader(
    "tensorboard",
    says="TensorBoard event files, one run per folder",
    detects=lambda source: "tfevents" in source.name,
    score=DECIDES,
)
def tensorboard(source: Source) -> Iterator[Run]:
    """Yield the run in a folder, whose event files are all read with the first one.

    In an event, field 2 is the step and field 5 the summary. Field 1 of the summary is a value: its
    tag (1), and a float (2) or a tensor (8) with one float, which has a type (1) and values (5, 4).
    """
    own, run = Path(source.path), Run()
    files = sorted(filter(is_regular, own.parent.glob("*tfevents*")))
    if files and own.name != files[0].name:
        raise port.SkippedError(f"it is read together with {files[0].name}")
    for file in files or [own]:
        for record in _records(file):
            event = _fields(record)
            for value in (v for summary in event.get(5, []) for v in _fields(summary).get(1, [])):
                parts = _fields(value)
                tensor = _fields(b"".join(parts.get(8, [])))
                content = b"".join(parts.get(2, []) + tensor.get(5, []) + tensor.get(4, []))
                if len(content) == 4 and tensor.get(1, [DT_FLOAT]) == [DT_FLOAT] and 1 in parts:
                    step, (scalar,) = event.get(2, [0])[-1], struct.unpack("<f", content)
                    run.log(parts[1][-1].decode(), step, scalar)
    if run.curves:
        yield run


def _records(path: Path) -> Iterator[bytes]:
    """Yield the content of each complete record in a TFRecord file, without its checksums."""
    with open_regular(path) as file:
        while header := file.read(12):
            length = int.from_bytes(header[:8], "little")
            if len(content := file.read(length + 4)) < length + 4:
                return
            yield content[:-4]


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Parse a protocol buffer message into lists of integers or bytes, keyed by field number."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = message[at : at + size], at + size
        if at > len(message):
            raise ValueError("a field is incomplete")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Decode the varint (seven bits per byte) at offset `at`, and return it and its end offset."""
    end = at
    while message[end] & 0x80:
        end += 1
    return sum((message[k] & 0x7F) << 7 * (k - at) for k in range(at, end + 1)), end + 1
