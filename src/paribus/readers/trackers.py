"""Folders and databases of experiment trackers: MLflow's mlruns and trackio."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.digests import flatten
from paribus.errors import ParibusError
from paribus.readers.port import (
    NOT_FINISHED,
    Run,
    SkippedError,
    Source,
    Value,
    as_float,
    as_number,
    is_number,
    reader,
)
from paribus.untrusted_io import MIB, is_regular, read_text, regular_path

STATUS = {"1": "running", "2": "scheduled", "4": "failed", "5": "killed"}  # 3: finished
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # as trackio writes them
MOST = 64 * MIB  # of a metric or a parameter


def _is_mlflow(source: Source) -> bool:
    return source.name == "meta.yaml" and source.has(b"lifecycle_stage:") and source.has(b"run_id:")


@reader("mlflow", says="mlruns/, a folder for each run", detects=_is_mlflow)
def mlflow(source: Source) -> Iterator[Run]:
    """Yield the run of a folder: metrics by step, parameters and tags as facts.

    The value of a metric is the largest by (step, timestamp, value), as MLflow has it. A run that
    was deleted is skipped.
    """
    home = Path(source.path).parent
    meta = {}
    for line in source.lines():
        key, _, value = line.decode("utf-8", "replace").partition(":")
        meta[key.strip()] = value.strip().strip("'\"")
    if meta.get("lifecycle_stage") == "deleted":
        raise SkippedError("the run was deleted")
    run = Run("", facts={"run_id": meta.get("run_id", home.name)})
    if meta.get("run_name"):
        run.facts["name"] = meta["run_name"]
    if (status := STATUS.get(meta.get("status", ""))) is not None:
        run.facts[NOT_FINISHED] = status
    for folder, prefix in (("params", ""), ("tags", "tags.")):
        for file in _files(home / folder):
            text = read_text(file, MOST).strip()
            number = as_number(text)
            fact = "parent" if file.name == "mlflow.parentRunId" else f"{prefix}{file.name}"
            run.facts[fact] = text if number is None else number
    for file in _files(home / "metrics"):
        name = file.relative_to(home / "metrics").as_posix()
        points = [list(map(float, line.split())) for line in read_text(file, MOST).splitlines()]
        if any(len(point) != 3 for point in points):
            raise ParibusError(f"{file} has a line that is not 'timestamp value step'")
        # NaN is the least of a step, as the largest value counts.
        points.sort(key=lambda p: (p[2], p[0], -math.inf if math.isnan(p[1]) else p[1]))
        if points:
            run.curves[name] = [(step, value) for _, value, step in points]
    yield run.finish()


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if is_regular(file))


def _is_trackio(source: Source) -> bool:
    return source.head.startswith(b"SQLite format 3\0") and source.has(b"metrics")


@reader("trackio", says="a project of trackio, an SQLite file", detects=_is_trackio)
def trackio(source: Source) -> Iterator[Run]:
    """Yield the runs of a project: metrics by step, configurations as facts."""
    path = Path(regular_path(source.path, 2**40)).absolute()
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            rows = database.execute(
                "SELECT run_name, step, metrics FROM metrics ORDER BY timestamp, id"
            ).fetchall()
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            configs = (
                database.execute("SELECT run_name, config FROM configs").fetchall()
                if "configs" in tables
                else []
            )
    except sqlite3.Error as error:
        raise ParibusError(f"{source.path} is not a project of trackio: {error}") from None
    runs: dict[str, Run] = {}
    for name, step, text in rows:
        run = runs.setdefault(str(name), Run("", facts={"name": str(name)}))
        for metric, value in _parse(text).items():
            number = NUMBERS.get(value, value) if isinstance(value, str) else value
            if is_number(number) and is_number(step):
                run.log(metric, as_float(step), as_float(number))
    for name, text in configs:
        if str(name) in runs:
            runs[str(name)].facts |= {
                f"config.{key}": _fact(value) for key, value in _parse(text).items()
            }
    yield from (run.finish() for run in runs.values() if run.curves)


def _parse(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return flatten(value) if isinstance(value, dict) else {}


def _fact(value: Any) -> Value:
    return as_float(value) if is_number(value) else str(value)
