"""Scores of a trial, computed again from its blocks, questions and code length.

Written anew and not called: a mistake in what computed them first would be made here as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from paribus.results.record_format import DECLARED
from paribus.results.trial_folder import TrialFolder

Rows = list[dict[str, Any]]

# Sums of the same numbers in another order; the records keep float64.
ROUNDING = 1e-9
# The same loss by another way through float32.
FLOAT32_ROUNDING = 1e-5


def score_findings(trial: TrialFolder) -> Iterator[str]:
    """Yield what evaluation.json, evaluation.parquet and tasks.parquet say otherwise than their
    parts."""
    scores: dict[str, Any] = trial.read_json("evaluation.json")
    blocks, tasks = trial.read_columns("blocks.parquet"), trial.read_columns("tasks.parquet")
    for name, value in _expected(trial, blocks, tasks.to_pylist()):
        if name in scores and not _close(scores[name], value):
            yield (
                f"trial {trial.label}: {name} is {scores[name]} in evaluation.json, and its parts "
                f"give {value}"
            )
    yield from _cells(trial, tasks.to_pylist())
    yield from _curve(trial, scores, sum(blocks["predicted"].to_pylist()))


def item_findings(trial: TrialFolder) -> Iterator[str]:
    """Yield the means over items that evaluation.json, of a trainer that declares what it records,
    says otherwise than the items give."""
    scores, metrics = trial.read_json("evaluation.json"), trial.read_json("trial.json")["metrics"]
    items = trial.read_columns(DECLARED.blocks)
    for name, metric in metrics.items():
        if metric.get("items") and name in items.column_names:
            values = _numbers(items[name].to_pylist())
            mean = math.fsum(values) / len(values) if values else math.nan
            if not _close(scores.get(name), mean):
                yield (
                    f"trial {trial.label}: {name} is {scores.get(name)} in evaluation.json, and "
                    f"the mean of its items {mean}"
                )


def _expected(trial: TrialFolder, blocks: pa.Table, tasks: Rows) -> Iterator[tuple[str, Any]]:
    """Scores and their names, as far as they follow from other records; some from two of them."""
    loss_sum = math.fsum(_numbers(blocks["loss_sum_nats"].to_pylist()))
    correct, predicted = (sum(blocks[name].to_pylist()) for name in ("correct", "predicted"))
    loss = loss_sum / predicted if predicted else math.nan
    measures = trial.read_columns("evaluation.parquet")
    rows = zip(*(measures[name].to_pylist() for name in ("measure", "part", "value")), strict=True)
    yield from ((measure, value) for measure, part, value in rows if part == "all")
    yield "loss_sum_nats", loss_sum
    yield "correct", correct
    yield "predicted", predicted
    yield "validation_loss", loss
    yield "validation_perplexity", math.exp(loss) if loss < 700 else math.inf
    yield "validation_accuracy", correct / predicted if predicted else math.nan
    record = trial.read_json("trial.json")
    if told := record.get("code_length"):
        bits = math.nan if told["bits"] is None else told["bits"]
        yield "bits_per_byte", bits / told["n_bytes"]
    for name, about in record["metrics"].items():
        ratio = about.get("items")
        if isinstance(ratio, dict) and {ratio["total"], ratio["count"]} <= set(blocks.column_names):
            total, count = (
                math.fsum(_numbers(blocks[ratio[key]].to_pylist())) for key in ("total", "count")
            )
            yield name, ratio["scale"] * total / count if count else math.nan
    by_task: dict[str, list[float]] = defaultdict(list)
    for row in tasks:
        by_task[row["task"].partition(":")[0]].append(row["accuracy"])
    if by_task:
        means = [math.fsum(cells) / len(cells) for cells in by_task.values()]
        yield "macro_accuracy", math.fsum(means) / len(means)


def _cells(trial: TrialFolder, tasks: Rows) -> Iterator[str]:
    counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    items = trial.read_columns("items.parquet", ["task", "shots", "correct"])
    answers = (items[name].to_pylist() for name in ("task", "shots", "correct"))
    for task, shots, correct in zip(*answers, strict=True):
        cell = counts[task, shots]
        cell[0] += 1
        cell[1] += bool(correct)
    for row in tasks:
        n, right = counts.pop((row["task"], row["shots"]), (0, 0))
        accuracy = right / n if n else math.nan
        stated = (row["items"], row["correct"])
        if stated != (n, right) or not _close(row["accuracy"], accuracy):
            yield (
                f"trial {trial.label}: task {row['task']} with {row['shots']} shots has "
                f"{stated[1]} of {stated[0]} right, and items.parquet gives {right} of {n}"
            )
    for task, shots in counts:
        yield f"trial {trial.label}: answers to {task} with {shots} shots are in no task"


def _curve(trial: TrialFolder, scores: dict[str, Any], predicted: int) -> Iterator[str]:
    """Compare the last point of the curve with the loss of the same text, where it is of all of
    it."""
    points = trial.read_columns("curve.parquet").to_pylist()
    if not points or points[-1]["predicted"] != predicted:
        return
    (last,) = _numbers([points[-1]["loss_sum_nats"]])
    if not _close(scores.get("validation_loss"), last / predicted, rounding=FLOAT32_ROUNDING):
        yield (
            f"trial {trial.label}: its curve ends at {last / predicted} nats/token, and "
            f"validation_loss is {scores.get('validation_loss')}"
        )


def _numbers(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _close(stated: Any, expected: Any, rounding: float = ROUNDING) -> bool:
    """Equal up to rounding; what is not finite is written as null."""
    if stated is None:
        return expected is None or not math.isfinite(expected)
    if expected is None:
        return False
    return math.isclose(stated, expected, rel_tol=rounding, abs_tol=rounding)
