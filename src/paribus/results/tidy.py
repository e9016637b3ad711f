"""From the tables of single trials to one table with a row per measured value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from paribus.results.columns import not_what_was_written
from paribus.results.trial_folder import TrialFolder

Read = TypeVar("Read")
PROBES = "probes.parquet"
LABELS = ("probe", "part", "statistic", "unit")  # of its columns


def last_row(table: pa.Table) -> dict[str, Any]:
    """Return the last row; empty where there is none."""
    return table.slice(len(table) - 1).to_pylist()[0] if len(table) else {}


def of_trial(folder: TrialFolder, table: pa.Table) -> pa.Table:
    """Return the table of one trial with its arm and seed in front."""
    n = len(table)
    table = table.add_column(0, "seed", pa.repeat(pa.scalar(folder.seed, pa.int64()), n))
    return table.add_column(0, "arm", pa.repeat(pa.scalar(folder.arm, pa.string()), n))


def of_no_trial(*columns: str) -> pa.Table:
    """Return an empty table with arm, seed and these columns."""
    return pa.table({name: pa.nulls(0) for name in ("arm", "seed", *columns)})


def of_each(
    read: Callable[[TrialFolder], Read], trials: Iterable[TrialFolder]
) -> dict[tuple[str, int], Read]:
    """Return what `read` gives of every trial, by (arm, seed), with a thread for each core.

    A Parquet file is opened and read where other threads may run meanwhile.
    """
    folders = list(trials)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = list(pool.map(read, folders))
    return {(f.arm, f.seed): table for f, table in zip(folders, tables, strict=True)}


def read_probes(folder: TrialFolder, names: list[str] | None = None) -> pa.Table:
    """Return what the probes of a trial measured, a column each; no row where it was not kept."""
    table = folder.read_columns(PROBES, names)
    for field in table.schema:
        if field.name != "step" and not pa.types.is_floating(field.type):
            raise not_what_was_written(folder.path / PROBES, f"'{field.name}' holds no numbers")
        if field.name != "step" and not set(LABELS) <= _labels(field).keys():
            raise not_what_was_written(folder.path / PROBES, f"'{field.name}' has no labels")
    return table


def tidy_probes(table: pa.Table) -> pa.Table:
    """Return a row for each value: step, probe, part, statistic, value, unit."""
    step, table = table["step"].to_numpy(), table.drop_columns(["step"])
    columns = [column.to_numpy() for column in table.columns]
    values = np.array(columns, np.float32).reshape(table.num_columns, len(step))
    at, row = np.nonzero(~np.isnan(values))
    labels = [_labels(field) for field in table.schema]
    tidy = {"step": pa.array(step[row], pa.int32())}
    for name in LABELS:
        words = pa.array([of_column[name] for of_column in labels], pa.string())
        tidy[name] = words.dictionary_encode().take(pa.array(at))
    return pa.table({**tidy, "value": pa.array(values[at, row])}).select(
        ["step", *LABELS[:-1], "value", "unit"]
    )


def _labels(field: pa.Field) -> dict[str, str]:
    return {key.decode(): word.decode() for key, word in (field.metadata or {}).items()}


def by_task(cells: pa.Table) -> dict[str, float]:
    """Accuracy by task, of one trial: the mean over its numbers of shots."""
    accuracies: dict[str, list[float]] = {}
    for row in cells.select(["task", "accuracy"]).to_pylist():
        accuracies.setdefault(row["task"], []).append(row["accuracy"])
    return {task: math.fsum(values) / len(values) for task, values in accuracies.items()}


def turns(throughput: pa.Table) -> dict[tuple[str, int], dict[str, float | None]]:
    """By (arm, seed), what arms took turns for: speeds, and the memory of training."""
    by_trial: dict[tuple[str, int], dict[str, float | None]] = {}
    for row in throughput.to_pylist():
        scores = by_trial.setdefault((row["arm"], row["seed"]), {})
        scores[f"{row['kind']}/tokens per second"] = row["tokens"] / row["seconds"]
        n_bytes = row.get("bytes")
        scores[f"{row['kind']}/MiB"] = n_bytes / 2**20 if n_bytes else None
    return by_trial
