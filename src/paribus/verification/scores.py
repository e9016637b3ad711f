"""Recomputation of a trial's scores from recorded sums and answers.

This implementation is independent of the code that computes scores, so that bugs in that code are
detected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pyarrow as pa

from paribus.comparison import agree, differences
from paribus.digests import plain
from paribus.numbers import some
from paribus.results.records import DECLARED
from paribus.results.trial_folder import TrialFolder


def score_findings(trial: TrialFolder) -> Iterator[str]:
    """Yield a finding per score of a trial that differs from its recomputed value.

    The scores in evaluation.json and tasks.parquet are checked.
    """
    scores: dict[str, Any] = trial.read_json("evaluation.json")
    blocks, tasks = trial.read_columns("blocks.parquet"), trial.read_columns("tasks.parquet")
    for name, value in _expected(trial, blocks, tasks):
        if name in scores and not agree(scores[name], plain(value)):
            yield (
                f"trial {trial.label}: {name} is {scores[name]} in evaluation.json, but {value} if "
                "recomputed"
            )
    yield from _cells(trial, tasks)


def item_findings(trial: TrialFolder) -> Iterator[str]:
    """Yield a finding per mean in evaluation.json that differs from the mean over its items.

    This check applies to trainers that declare their own metrics.
    """
    scores, metrics = trial.read_json("evaluation.json"), trial.read_json("trial.json")["metrics"]
    items = trial.read_columns(DECLARED.blocks)
    for name, metric in metrics.items():
        if metric.get("items") and name in items.column_names:
            mean = _ratio(_sum(items[name]), len(items))
            if not agree(scores.get(name), plain(mean)):
                yield (
                    f"trial {trial.label}: {name} is {scores.get(name)} in evaluation.json, but "
                    f"the mean over its items is {mean}"
                )


def _expected(trial: TrialFolder, blocks: pa.Table, tasks: pa.Table) -> Iterator[tuple[str, Any]]:
    """Yield (name, score) pairs recomputed from other records. Names can occur repeatedly."""
    sums = {name: _sum(blocks[name]) for name in ("loss_sum_nats", "correct", "predicted")}
    loss = _ratio(sums["loss_sum_nats"], sums["predicted"])
    for row in trial.read_columns("evaluation.parquet").to_pylist():
        if row["part"] == "all":
            yield row["measure"], row["value"]
    yield from sums.items()
    yield "validation_loss", loss
    yield "validation_perplexity", math.exp(loss) if loss < 700 else math.inf
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
        yield "macro_accuracy", fmean(map(fmean, by_task.values()))


def _cells(trial: TrialFolder, tasks: pa.Table) -> Iterator[str]:
    """Yield a finding if task accuracies differ from the share of correct answers."""
    answers = trial.read_columns("items.parquet", ["task", "shots", "correct"])
    cells = answers.group_by(["task", "shots"]).aggregate(
        [("correct", "count"), ("correct", "sum"), ("correct", "mean")]
    )
    stated, fresh = (
        {f"{row['task']} with {row['shots']} shots": [row[name] for name in wanted] for row in rows}
        for rows, wanted in (
            (tasks.to_pylist(), ("items", "correct", "accuracy")),
            (cells.to_pylist(), ("correct_count", "correct_sum", "correct_mean")),
        )
    )
    if differing := list(differences(stated, fresh)):
        yield (
            f"trial {trial.label}: tasks.parquet differs from items.parquet in {some(differing)}"
        )


def _sum(column: pa.ChunkedArray) -> float:
    """Return the sum of a column, or NaN if a value is missing."""
    return column.to_numpy().sum().item()


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
