"""The results of tasks: a row per item, and what follows from the rows.

`acc`, the choice of the highest summed log-likelihood, is the accuracy that counts. Choices of this
suite's items have one length in characters, so that sums and means rank them alike; where lengths
differ (tasks of others), `acc_norm`, per character, stands beside it. A task that asks for one text
and offers no choices (LAMBADA) is right where each token of it is the most probable one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.engine.evaluation.text_parts import equal_width, gap_sum, tally
from paribus.engine.tasks import WrittenSuite
from paribus.errors import ParibusError
from paribus.metric import QUESTIONS, Metric


def _schema(columns: dict[str, tuple[pa.DataType, str]]) -> pa.Schema:
    fields = columns.items()
    return pa.schema([pa.field(n, kind, metadata={"unit": unit}) for n, (kind, unit) in fields])


ITEMS = _schema(
    {
        "task": (pa.string(), "1"),
        "shots": (pa.int32(), "examples"),
        "item": (pa.int32(), "1"),
        "prompt_sha256": (pa.string(), "1"),
        "answer": (pa.int32(), "choice"),
        "predicted": (pa.int32(), "choice"),
        "correct": (pa.bool_(), "1"),
        "correct_per_character": (pa.bool_(), "1"),
        "loglikelihood": (pa.list_(pa.float64()), "nats"),
        "probability": (pa.list_(pa.float64()), "1"),
    }
)
CELLS = _schema(
    {
        "task": (pa.string(), "1"),
        "shots": (pa.int32(), "examples"),
        "chance": (pa.float64(), "share"),
        "uninformed": (pa.float64(), "share"),
        "items": (pa.int32(), "questions"),
        "correct": (pa.int32(), "questions"),
        "accuracy": (pa.float64(), "share"),
        "accuracy_per_character": (pa.float64(), "share"),
        "normalised_accuracy": (pa.float64(), "share"),
        "brier_score": (pa.float64(), "1"),
        "calibration_error": (pa.float64(), "share"),
    }
)
# What endpoints are read from, by the macro average that it is.
HEADLINE = {
    "accuracy": Metric(
        *("macro_accuracy", "macro accuracy over tasks", "share", "higher", "evaluation"),
        items=QUESTIONS,
    ),
    "normalised_accuracy": Metric(
        *("macro_accuracy_normalised", "macro accuracy above chance", "share", "higher"),
        "evaluation",
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
OF_CHOICES = ("brier_score", "calibration_error")  # what only tasks with choices have
MACRO = ("accuracy", "accuracy_per_character", "normalised_accuracy", *OF_CHOICES)


@dataclass(frozen=True)
class TaskResults:
    """One model on some tasks, each at some numbers of solved examples (shots).

    Attributes:
        items: a row per (task, shots, item), in the order in which they ran; see ITEMS. `item` is
            the line of the task's file or the record of its data set, `prompt_sha256` the digest of
            context and choices as the harness built them, `probability` the softmax of
            `loglikelihood` over the choices.
            Without choices, lists have one number, that of the right text; `answer` is 0, and
            `predicted` null where another text is more probable.
            A model without finite log-likelihoods answers nothing: no item of it is correct.
        chance: {task: accuracy of a guess}; 0 for tasks without choices.
        not_offered: (task, shots) that were asked for and do not fit the window.
        skipped, replaced: {task: items that held unknown characters} by what was done with them;
            skipped items have no row.
        pins: which harness, which tasks (see `harness_pins`).
        truncated: {task: items that were longer than the window, and so not read as a whole}.
        uninformed: {task: accuracy of equal logits}, which take the choice of fewest tokens: chance
            where tokens are characters and choices of one length. A BPE tokenizer spells real text
            with fewer tokens than corrupted text, so that a model which knows nothing beats chance.
    """

    items: pa.Table
    chance: dict[str, float]
    not_offered: tuple[tuple[str, int], ...]
    skipped: dict[str, int]
    replaced: dict[str, int]
    pins: dict[str, Any]
    truncated: dict[str, int] = field(default_factory=dict)
    uninformed: dict[str, float] = field(default_factory=dict)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """A row per (task, shots): items, correct, accuracy and its like, Brier score, ECE.

        `normalised_accuracy` is (accuracy - chance) / (1 - chance): 0 for a guess, 1 for no error.
        `brier_score` is the mean over items of the squared distance between the choices'
        probabilities and the answer (Brier 1950; 0 to 2), `calibration_error` that of the most
        probable choice; both are None without choices.
        """
        columns = {name: self.items[name].to_pylist() for name in ITEMS.names}
        rows: dict[tuple[str, int], list[int]] = {}
        for row, key in enumerate(zip(columns["task"], columns["shots"], strict=True)):
            rows.setdefault(key, []).append(row)
        return [
            {
                "task": task,
                "shots": shots,
                "chance": self.chance[task],
                "uninformed": self.uninformed.get(task),
            }
            | _measures(
                {name: [column[i] for i in at] for name, column in columns.items()},
                self.chance[task],
            )
            for (task, shots), at in rows.items()
        ]

    @property
    def headline(self) -> dict[str, float | None]:
        """The values that endpoints are read from, by the name of the metric: macro averages.

        Every task counts once, with the mean over its wordings ("task:wording") and its numbers of
        shots. What tasks without choices do not have is a mean over the others.
        """
        overall = _macro(self.cells)
        return {metric.name: overall[average] for average, metric in HEADLINE.items()}

    @property
    def about(self) -> dict[str, Any]:
        """The record of how a trial was tested."""
        prompts = "".join(self.items["prompt_sha256"].to_pylist())
        return {
            "pins": self.pins,
            "prompts_sha256": hashlib.sha256(prompts.encode()).hexdigest(),
            "not_offered": [list(pair) for pair in self.not_offered],
            "skipped": self.skipped,
            "replaced": self.replaced,
            "truncated": self.truncated,
            "uninformed": self.uninformed,
        }


def together(parts: Sequence[TaskResults]) -> TaskResults:
    """Results of several runs of the harness, of other tasks each, as one."""
    first, *others = parts
    if not others:
        return first
    pins: dict[str, Any] = {}
    for part in parts:
        pins |= part.pins | {"tasks": pins.get("tasks", {}) | part.pins["tasks"]}

    def merged(name: str) -> dict[str, Any]:
        return {key: value for part in parts for key, value in getattr(part, name).items()}

    return TaskResults(
        items=pa.concat_tables([part.items for part in parts]),
        chance=merged("chance"),
        not_offered=tuple(pair for part in parts for pair in part.not_offered),
        skipped=merged("skipped"),
        replaced=merged("replaced"),
        pins=pins,
        truncated=merged("truncated"),
        uninformed=merged("uninformed"),
    )


def _macro(cells: list[dict[str, Any]]) -> dict[str, float | None]:
    """Means over tasks of the means over a task's cells; None where one of them is None."""
    by_task: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        by_task.setdefault(cell["task"].partition(":")[0], []).append(cell)
    tasks = list(by_task.values())
    macro: dict[str, float | None] = {}
    with_choices = [cells for cells in tasks if cells[0]["chance"] > 0]
    for name in MACRO:
        having = with_choices if name in OF_CHOICES else tasks
        values = [[cell[name] for cell in cells] for cells in having]
        known = bool(values) and all(value is not None for row in values for value in row)
        macro[name] = (
            math.fsum(math.fsum(row) / len(row) for row in values) / len(values) if known else None
        )
    return macro


def _measures(rows: dict[str, list[Any]], chance: float) -> dict[str, Any]:
    n, correct = len(rows["item"]), sum(rows["correct"])
    accuracy = correct / n
    probabilities = rows["probability"]
    # Without choices there is nothing to be calibrated over.
    finite = chance > 0 and all(math.isfinite(p) for row in probabilities for p in row)
    return {
        "items": n,
        "correct": correct,
        "accuracy": accuracy,
        "accuracy_per_character": sum(rows["correct_per_character"]) / n,
        "normalised_accuracy": (accuracy - chance) / (1 - chance),
        "brier_score": brier_score(probabilities, rows["answer"]) if finite else None,
        "calibration_error": (calibration_error(probabilities, rows["answer"]) if finite else None),
    }


def brier_score(probabilities: Sequence[Sequence[float]], answers: Sequence[int]) -> float:
    """Return the mean over items of sum_k (p_k - [k is the answer])^2 (Brier 1950)."""
    return math.fsum(
        (p - (choice == answer)) ** 2
        for row, answer in zip(probabilities, answers, strict=True)
        for choice, p in enumerate(row)
    ) / len(answers)


def calibration_error(probabilities: Sequence[Sequence[float]], answers: Sequence[int]) -> float:
    """Return the mean of |accuracy - confidence| over bins, weighted by items (Guo et al. 2017, eq.

    3).
    """
    confidence = np.array([max(row) for row in probabilities])
    hits = np.array(
        [np.argmax(row) == answer for row, answer in zip(probabilities, answers, strict=True)]
    )
    return gap_sum(tally(equal_width(confidence), confidence, hits)) / len(answers)


PACKAGE = "lm_eval"


def package_pins() -> dict[str, Any]:
    """Return version and digest of the harness.

    The harness's own `git_hash` is that of the working folder and says nothing of the harness.
    """
    return {
        "package": PACKAGE,
        "version": _distribution().version,
        "installed_sha256": installed_digest(),
    }


def harness_pins(suite: WrittenSuite) -> dict[str, Any]:
    """Return version and digests of the harness and of the tasks of `suite` that it ran."""
    return package_pins() | {
        "suite_sha256": suite.digest,
        "tasks": {
            name: {"version": task.version, "chance": task.chance, "sha256": task.files}
            for name, task in suite.tasks.items()
        },
    }


@cache
def installed_digest() -> str:
    """SHA-256 of the package's own lines of its RECORD: path and digest of every file installed.

    Lines of the installer (compiled files, scripts, `.dist-info`) differ between machines and are
    left out.
    """
    lines = sorted(
        f"{file.as_posix()},{file.hash.mode}={file.hash.value}"
        for file in _distribution().files or ()
        if file.hash and file.parts[0] == PACKAGE and file.suffix != ".pyc"
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ParibusError(
            f"the package '{PACKAGE}' is not installed, and tasks run through it; "
            "install paribus again with its dependencies"
        ) from None
