"""From the tables of single trials to one table with a row per measured value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.errors import ParibusError
from paribus.results.trial_folder import TrialFolder


def last_row(table: pa.Table) -> dict[str, Any]:
    """The last row; empty where there is none."""
    return table.slice(len(table) - 1).to_pylist()[0] if len(table) else {}


def of_trial(folder: TrialFolder, table: pa.Table) -> pa.Table:
    """The table of one trial with its arm and seed in front."""
    n = len(table)
    table = table.add_column(0, "seed", pa.array([folder.seed] * n, pa.int64()))
    return table.add_column(0, "arm", pa.array([folder.arm] * n, pa.string()))


def of_no_trial(*columns: str) -> pa.Table:
    """An empty table with arm, seed and these columns."""
    return pa.table({name: [] for name in ("arm", "seed", *columns)})


def tidy(wide: pa.Table) -> pa.Table:
    """One row per measured value of a table whose columns carry labels; absent ones have none."""
    steps = wide["step"]
    kept: list[tuple[pa.ChunkedArray, pa.ChunkedArray]] = []
    labels: dict[str, list[str]] = {"probe": [], "part": [], "statistic": [], "unit": []}
    for field in wide.schema:
        if field.name == "step":
            continue
        about = {k.decode(): v.decode() for k, v in field.metadata.items()}
        valid = wide[field.name].is_valid()
        kept.append((steps.filter(valid), wide[field.name].filter(valid)))
        for name, values in labels.items():
            values.append(about[name])
    counts = [len(values) for _, values in kept]

    def repeated(values: list[str]) -> pa.Array:
        distinct = list(dict.fromkeys(values))
        codes = np.repeat([distinct.index(value) for value in values], counts).astype(np.int32)
        return pa.DictionaryArray.from_arrays(codes, pa.array(distinct, pa.string()))

    return pa.table(
        {
            "step": pa.chunked_array([c for s, _ in kept for c in s.chunks], pa.int32()),
            "probe": repeated(labels["probe"]),
            "part": repeated(labels["part"]),
            "statistic": repeated(labels["statistic"]),
            "value": pa.chunked_array([c for _, v in kept for c in v.chunks], pa.float32()),
            "unit": repeated(labels["unit"]),
        }
    )


def by_task(folder: TrialFolder) -> dict[str, float]:
    """Accuracy by task, the mean over its numbers of shots."""
    found: dict[str, list[float]] = {}
    for row in folder.read_columns("tasks.parquet", ["task", "accuracy"]).to_pylist():
        found.setdefault(row["task"], []).append(row["accuracy"])
    return {task: math.fsum(values) / len(values) for task, values in found.items()}


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of all trials. Raises ParibusError where trials have other columns."""
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise ParibusError(
            f"the same record of two trials has other columns ({error}); `paribus verify` finds "
            "what was changed"
        ) from None
