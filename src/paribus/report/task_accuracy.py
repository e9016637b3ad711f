"""Accuracy on tasks, where the records have it: the table beside the figure."""

from __future__ import annotations

import math

import numpy as np

from paribus import numbers
from paribus.analysis import Analysis
from paribus.numbers import plural
from paribus.report.figures import names
from paribus.report.figures.figure_rows import task_accuracy
from paribus.report.tables import Table
from paribus.report.vocabulary import listed
from paribus.results import Results

DIGITS = 3
FEWEST_TESTED = 5  # seed pairs; fewer are described


def tasks_in_words(results: Results) -> str:
    """Which tasks were asked, and through what, as a trial recorded it; empty where none were."""
    record = next((t["tasks"] for t in results.trials.values() if t.get("tasks")), {})
    pins = record.get("pins", {})
    asked = set(results.tasks["task"].to_pylist())  # a suite has more than a study may ask
    there = [pair for pair in pins.get("tasks", {}).items() if pair[0] in asked]
    if not there:
        return ""
    known = [(name, about) for name, about in there if "dataset" in about]
    drawn = [name for name, about in there if "dataset" not in about]
    parts = [f"{listed(drawn)}, made from held-out text"] if drawn else []
    parts += [
        f"{name} (version {about['version']:g}, {plural(about['documents'], 'question')} of "
        f"{about['dataset']}, SHA-256 {about['data_sha256'][:12]})"
        for name, about in known
    ]
    shots = listed([str(n) for n in results.study.tasks.shots])
    return (
        f"Zero- and few-shot accuracy is measured through the LM Evaluation Harness "
        f"({pins['package']} {pins['version']}), with {shots} solved examples where they fit, on "
        f"{'; '.join(parts)}. Macro accuracy is the mean over all tasks."
    )


def task_table(results: Results) -> Table | None:
    """Mean accuracy (SD over seeds) of every arm on every task, beside what guessing gives."""
    recorded = task_accuracy(results)
    if recorded is None or not len(recorded):
        return None
    called = names(results.study)
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    chances: dict[tuple[str, int], float] = {}
    for row in recorded.select(["arm", "task", "shots", "accuracy", "chance"]).to_pylist():
        if row["accuracy"] is None or not math.isfinite(row["accuracy"]):
            continue
        key = (row["task"], row["shots"])
        values.setdefault(key, {}).setdefault(row["arm"], []).append(row["accuracy"])
        chances[key] = row["chance"]
    rows = []
    for (task, shots), by_arm in values.items():
        for i, (arm, accuracies) in enumerate(by_arm.items()):
            about = (task, str(shots)) if i == 0 else ("", "")
            sd = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else None
            mean = numbers.mean_sd(float(np.mean(accuracies)), sd, DIGITS)
            chance = numbers.fixed(chances[task, shots], DIGITS)
            rows.append((*about, called[arm], mean, str(len(accuracies)), chance))
    return Table(
        "tasks",
        "Accuracy on every task: mean and SD over seeds, and what guessing gives. "
        + tasks_in_words(results),
        ("task", "shots", "arm", "accuracy (SD)", "seeds", "chance"),
        tuple(rows),
        frozenset({"task", "arm"}),
        wide=True,
    )


# What the interval and p of a task are about, by whether it is new questions.
_ABOUT = {
    False: (
        "the interval and p are of the registered test of seed means, on these questions, and say "
        "nothing of new ones."
    ),
    True: ("the interval and p are of the crossed bootstrap of seeds and questions, for new ones."),
}


def task_contrast_table(analysis: Analysis) -> Table | None:
    """Every task of every contrast, with Holm over the family of tasks x contrasts."""
    called = names(analysis.study)
    rows = []
    for c in analysis.tasks:
        change = numbers.signed(c.treatment - c.baseline, DIGITS)
        says = c.decided
        if says is not None:
            change = numbers.delta(says.mean, says.interval.low, says.interval.high, DIGITS)
        tested = says is not None and len(c.seeds) >= FEWEST_TESTED
        rows.append(
            (
                c.task,
                called[c.arm],
                numbers.fixed(c.baseline, DIGITS),
                numbers.fixed(c.treatment, DIGITS),
                change,
                numbers.p_value(says.p_value if says and tested else None),
                numbers.p_value(c.holm_p if tested else None),
            )
        )
    if not rows:
        return None
    level = numbers.level(analysis.study.inference.alpha)
    about = _ABOUT[analysis.study.inference.of_new_questions]
    return Table(
        "task-contrasts",
        f"Accuracy on every task against the reference: {about} "
        "Holm's adjustment is over all tasks and contrasts.",
        ("task", "arm", "reference", "accuracy", f"change [{level}]", "p", "Holm p"),
        tuple(rows),
        frozenset({"task", "arm"}),
        wide=True,
    )
