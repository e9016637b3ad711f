"""Per-item task results, and the scores computed from them.

The main accuracy is `acc`, which selects the choice with the highest summed log-likelihood. In a
suite generated from held-out text, the choices of an item have equal lengths in characters, so sums
and means per character rank them equally. An item without choices (LAMBADA) is correct if every
token of the target text is the most probable one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.engine.evaluation.measures import equal_width, gap_sum, tally
from paribus.metric import QUESTIONS, Metric

ITEMS = pa.schema(
    {
        "task": pa.string(),
        "shots": pa.int32(),
        "item": pa.int32(),
        "prompt_sha256": pa.string(),
        "answer": pa.int32(),
        "predicted": pa.int32(),
        "correct": pa.bool_(),
        "loglikelihood": pa.list_(pa.float64()),
        "probability": pa.list_(pa.float64()),
    }
)
CELLS = pa.schema(
    {
        "task": pa.string(),
        "shots": pa.int32(),
        "chance": pa.float64(),
        "items": pa.int32(),
        "correct": pa.int32(),
        "accuracy": pa.float64(),
        "brier_score": pa.float64(),
        "calibration_error": pa.float64(),
    }
)
# What endpoints are read from, by the column of CELLS that it is the macro average of.
HEADLINE = {
    "accuracy": Metric(
        *("macro_accuracy", "macro accuracy over tasks", "share", "higher", "evaluation"),
        items=QUESTIONS,
    ),
    "calibration_error": Metric(
        *("choice_calibration_error", "calibration error of choices", "share", "lower"),
        "evaluation",
    ),
    "brier_score": Metric(
        "choice_brier_score", "Brier score of choices", "", "lower", "evaluation"
    ),
}
# The same on each task, the mean over its numbers of shots.
TASK_ACCURACY = Metric(
    "task_accuracy", "task accuracy", "share", "higher", "tasks", items=QUESTIONS
)


@dataclass(frozen=True)
class TaskResults:
    """Results of a model on tasks, for one or more numbers of few-shot examples.

    Attributes:
        items: one row per (task, shots, item), in the order of evaluation, with the columns in
            ITEMS. `item` is the index of the item in the task's file or data set, `prompt_sha256`
            the digest of context and choices as built by the harness, and `probability` the softmax
            of `loglikelihood` over the choices.
            For an item without choices, lists contain a single value for the target text, `answer`
            is 0, and `predicted` is null if another text is more probable.
            An item with a non-finite log-likelihood counts as incorrect.
        pins: versions and digests of the harness and the tasks.
    """

    items: pa.Table
    pins: dict[str, Any]

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Scores of each (task, shots) pair, as rows with the columns in CELLS.

        `chance` is the accuracy of random guessing, or 0 if items have no choices. `brier_score`
        and `calibration_error` are computed from the choice probabilities. Both are None if items
        have no choices, and NaN if a log-likelihood is not finite.
        """
        rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in self.items.to_pylist():
            rows.setdefault((row["task"], row["shots"]), []).append(row)
        return [self._cell(task, shots, of_cell) for (task, shots), of_cell in rows.items()]

    @staticmethod
    def _cell(task: str, shots: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
        n, correct = len(rows), sum(row["correct"] for row in rows)
        probabilities, answers = ([row[key] for row in rows] for key in ("probability", "answer"))
        sizes = [len(row) for row in probabilities]
        has_choices = min(sizes) > 1
        return {
            "task": task,
            "shots": shots,
            "chance": fmean(1 / size for size in sizes) if has_choices else 0.0,
            "items": n,
            "correct": correct,
            "accuracy": correct / n,
            "brier_score": brier_score(probabilities, answers) if has_choices else None,
            "calibration_error": calibration_error(probabilities, answers) if has_choices else None,
        }

    @property
    def headline(self) -> dict[str, float | None]:
        """Macro averages over tasks, keyed by metric name.

        All tasks have equal weight: scores are first averaged over a task's wordings
        ("task:wording") and numbers of shots. Metrics that need choices are averaged over the tasks
        with choices, and are None if there are none.
        """
        tasks: dict[str, list[dict[str, Any]]] = {}
        for cell in self.cells:
            tasks.setdefault(cell["task"].partition(":")[0], []).append(cell)
        headline: dict[str, float | None] = {}
        for name, metric in HEADLINE.items():
            values = [[cell[name] for cell in cells] for cells in tasks.values()]
            values = [row for row in values if None not in row]
            headline[metric.name] = fmean(map(fmean, values)) if values else None
        return headline

    @property
    def metadata(self) -> dict[str, Any]:
        """Versions and digests of tasks and prompts, as stored in a trial's record."""
        prompts = "".join(self.items["prompt_sha256"].to_pylist())
        return {
            "pins": self.pins,
            "prompts_sha256": hashlib.sha256(prompts.encode()).hexdigest(),
        }


def together(first: TaskResults, second: TaskResults) -> TaskResults:
    """Merge the results of two harness runs on different tasks."""
    return TaskResults(
        pa.concat_tables([first.items, second.items]),
        first.pins | second.pins | {"tasks": first.pins["tasks"] | second.pins["tasks"]},
    )


def brier_score(probabilities: Sequence[Sequence[float]], answers: Sequence[int]) -> float:
    """Return the Brier score, the mean over items of sum_k (p_k - [k is the answer])^2.

    The score ranges from 0 (best) to 2 (Brier 1950).

    Args:
        probabilities: probability of each choice, for each item.
        answers: index of the correct choice of each item.
    """
    return math.fsum(
        (p - (choice == answer)) ** 2
        for row, answer in zip(probabilities, answers, strict=True)
        for choice, p in enumerate(row)
    ) / len(answers)


def calibration_error(probabilities: Sequence[Sequence[float]], answers: Sequence[int]) -> float:
    """Return the expected calibration error of the most probable choice.

    This is the mean of |accuracy - confidence| over confidence bins, weighted by the number of
    items (Guo et al. 2017, equation 3).

    Args:
        probabilities: probability of each choice, for each item.
        answers: index of the correct choice of each item.
    """
    confidence = np.array([max(row) for row in probabilities])
    hits = np.array([int(np.argmax(row)) for row in probabilities]) == np.array(answers)
    return gap_sum(tally(equal_width(confidence), confidence, hits)) / len(answers)
