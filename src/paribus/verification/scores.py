"""Recomputation of a trial's scores from its blocks and questions.

This is an independent implementation, so that a mistake in the original code is not repeated
here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from paribus.results.records import DECLARED
from paribus.results.trial_folder import TrialFolder

# Sums of the same numbers in another order; the records keep float64.
ROUNDING = 1e-9


def score_findings(trial: TrialFolder) -> Iterator[str]:
    """Yield differences between scores in evaluation.json and tasks.parquet and their recomputed
    values."""
    scores: dict[str, Any] = trial.read_json("evaluation.json")
    blocks, tasks = trial.read_columns("blocks.parquet"), trial.read_columns("tasks.parquet")
    for name, value in _expected(trial, blocks, tasks):
        if name in scores and not _close(scores[name], value):
            yield (
                f"trial {trial.label}: {name} is {scores[name]} in evaluation.json, and its parts "
                f"give {value}"
            )
    yield from _cells(trial, tasks)


def item_findings(trial: TrialFolder) -> Iterator[str]:
    """Yield means over items in evaluation.json that differ from their items, for trainers that
    declare their metrics."""
    scores, metrics = trial.read_json("evaluation.json"), trial.read_json("trial.json")["metrics"]
    items = trial.read_columns(DECLARED.blocks)
    for name, metric in metrics.items():
        if metric.get("items") and name in items.column_names:
            mean = _ratio(_sum(items[name]), len(items))
            if not _close(scores.get(name), mean):
                yield (
                    f"trial {trial.label}: {name} is {scores.get(name)} in evaluation.json, and "
                    f"the mean of its items {mean}"
                )


def _expected(trial: TrialFolder, blocks: pa.Table, tasks: pa.Table) -> Iterator[tuple[str, Any]]:
    """Yield (name, score) for each score that follows from other records; some names come twice."""
    sums = {name: _sum(blocks[name]) for name in ("loss_sum_nats", "correct", "predicted")}
    loss = _ratio(sums["loss_sum_nats"], sums["predicted"])
    for row in trial.read_columns("evaluation.parquet").to_pylist():
        if row["part"] == "all":
            yield row["measure"], row["value"]
    yield from sums.items()
    yield "validation_loss", loss
    yield "validation_perplexity", math.exp(loss) if loss < 700 else math.inf
    yield "validation_accuracy", _ratio(sums["correct"], sums["predicted"])
    record = trial.read_json("trial.json")
    for name, metric in record["metrics"].items():
        ratio = metric.get("items")
        if isinstance(ratio, dict) and {ratio["total"], ratio["count"]} <= set(blocks.column_names):
            total, count = _sum(blocks[ratio["total"]]), _sum(blocks[ratio["count"]])
            yield name, ratio["scale"] * _ratio(total, count)
    by_task: dict[str, list[float]] = defaultdict(list)
    for row in tasks.to_pylist():
        by_task[row["task"].partition(":")[0]].append(row["accuracy"])
    if by_task:
        means = [math.fsum(cells) / len(cells) for cells in by_task.values()]
        yield "macro_accuracy", math.fsum(means) / len(means)


def _cells(trial: TrialFolder, tasks: pa.Table) -> Iterator[str]:
    answers = trial.read_columns("items.parquet", ["task", "shots", "correct"])
    cells = answers.group_by(["task", "shots"]).aggregate(
        [("correct", "count"), ("correct", "sum")]
    )
    counts = {
        (cell["task"], cell["shots"]): (cell["correct_count"], cell["correct_sum"])
        for cell in cells.to_pylist()
    }
    for row in tasks.to_pylist():
        n, right = counts.pop((row["task"], row["shots"]), (0, 0))
        stated = (row["items"], row["correct"])
        if stated != (n, right) or not _close(row["accuracy"], _ratio(right, n)):
            yield (
                f"trial {trial.label}: task {row['task']} with {row['shots']} shots has "
                f"{stated[1]} of {stated[0]} right, and items.parquet gives {right} of {n}"
            )
    for task, shots in counts:
        yield f"trial {trial.label}: answers to {task} with {shots} shots are in no task"


def _sum(column: pa.ChunkedArray) -> float:
    """Return the sum of a column, exact for integers; NaN if a value is missing."""
    values = column.to_pylist()
    exact = sum if pa.types.is_integer(column.type) else math.fsum
    return math.nan if None in values else exact(values)


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


def _close(stated: Any, expected: Any) -> bool:
    """Return whether two scores are equal up to rounding; numbers that are not finite are stored
    as null."""
    if stated is None:
        return expected is None or not math.isfinite(expected)
    if expected is None:
        return False
    return math.isclose(stated, expected, rel_tol=ROUNDING, abs_tol=ROUNDING)
