"""From the tables of single trials to one table with a row per measured value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from paribus.results.trial_folder import TrialFolder

Read = TypeVar("Read")


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


def by_task(cells: pa.Table) -> dict[str, float]:
    """Accuracy by task, of one trial: the mean over its numbers of shots."""
    found: dict[str, list[float]] = {}
    for row in cells.select(["task", "accuracy"]).to_pylist():
        found.setdefault(row["task"], []).append(row["accuracy"])
    return {task: math.fsum(values) / len(values) for task, values in found.items()}


def turns(throughput: pa.Table) -> dict[tuple[str, int], dict[str, float | None]]:
    """By (arm, seed), what arms took turns for: speeds, and the memory of training."""
    by_trial: dict[tuple[str, int], dict[str, float | None]] = {}
    for row in throughput.to_pylist():
        scores = by_trial.setdefault((row["arm"], row["seed"]), {})
        scores[f"{row['kind']}/tokens per second"] = row["tokens"] / row["seconds"]
        n_bytes = row.get("bytes")
        scores[f"{row['kind']}/MiB"] = n_bytes / 2**20 if n_bytes else None
    return by_trial
