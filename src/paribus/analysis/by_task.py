"""Zero- and few-shot accuracy: paired by seed for every task, and by seed and question for all.

The family of tasks x contrasts is Holm-adjusted by itself. A task's accuracy is the mean over its
numbers of shots, as in the macro average. The registered target decides here too: a claim about new
questions rests on the crossed bootstrap of seeds and of the task's questions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypedDict

import numpy as np

from paribus.analysis.infer import infer, infer_items
from paribus.analysis.schema import TaskContrast
from paribus.analysis.table import Table
from paribus.results import Results
from paribus.statistics import DESCRIPTIVE_BELOW, MacroContrast, OneLook, Stages, holm


def task_contrasts(table: Table) -> list[TaskContrast]:
    """Every task of every contrast whose controls held; diverged trials are left out.

    What could not be compared stays in the family as p = 1, so that losing a contrast never helps
    the others.
    """
    study = table.results.study
    accuracy = task_accuracy(table.results)
    there = table.results.tasks.select(["task", "chance"]).to_pylist() if accuracy else []
    chances = {row["task"]: row["chance"] for row in there}
    family = len(study.contrasts) * len(chances)
    found = []
    for arm, reference in study.contrasts:
        if table.broken(arm):
            continue
        sampled, arms = table.sampling(arm), (arm, reference)
        usable = [s for s in study.seeds if not any(table.why_diverged(a, s) for a in arms)]
        for task, chance in chances.items():
            seeds = tuple(
                seed
                for seed in sampled.seeds
                if seed in usable
                and {(arm, seed, task), (reference, seed, task)} <= accuracy.keys()
            )
            if not seeds:
                continue
            theirs = [accuracy[reference, seed, task] for seed in seeds]
            ours = [accuracy[arm, seed, task] for seed in seeds]
            contrast = TaskContrast(
                *(arm, reference, task, chance, seeds),
                baseline=float(np.mean(theirs)),
                treatment=float(np.mean(ours)),
                paired=None,
            )
            if not sampled.why_not(seeds):
                about: _About = {
                    "family": family,
                    "resolution": 1 / questions_asked(table, arm, seeds[0], task),
                    "design": sampled.design(seeds),
                }
                contrast = replace(
                    contrast,
                    paired=infer(study, theirs, ours, **about),
                    items=_items(table, contrast, about),
                )
            found.append(contrast)
    if not found:
        return found
    p_values = [c.decided.p_value if c.decided else 1.0 for c in found]
    adjusted = holm(p_values + [1.0] * (family - len(found)))
    return [
        replace(c, holm_p=float(p)) if len(c.seeds) >= DESCRIPTIVE_BELOW else c
        for c, p in zip(found, adjusted, strict=False)
    ]


class _About(TypedDict):
    family: int
    resolution: float
    design: OneLook | Stages | None


def _items(table: Table, contrast: TaskContrast, about: _About) -> MacroContrast | None:
    """Paired by seed and by question, where claims are about new ones and the arms share these."""
    study = table.results.study
    if not study.inference.of_new_questions:
        return None
    baseline, treatment = (
        question_scores(table, arm, contrast.seeds, contrast.task)
        for arm in (contrast.reference, contrast.arm)
    )
    if not baseline or [task.shape for task in baseline] != [task.shape for task in treatment]:
        return None
    return infer_items(study, baseline, treatment, **about)


def task_accuracy(results: Results) -> dict[tuple[str, int, str], float]:
    """Accuracy by (arm, seed, task), the mean over numbers of shots."""
    found: dict[tuple[str, int, str], list[float]] = {}
    columns = ["arm", "seed", "task", "accuracy"]
    for row in results.tasks.select(columns).to_pylist() if len(results.tasks) else ():
        found.setdefault((row["arm"], row["seed"], row["task"]), []).append(row["accuracy"])
    return {key: math.fsum(values) / len(values) for key, values in found.items()}


def question_scores(
    table: Table, arm: str, seeds: tuple[int, ...], task: str | None = None
) -> list[np.ndarray]:
    """By task [seeds, questions]: the share of the numbers of shots at which it was right.

    Of one task, or of all that the trials answered.

    Questions are in one order in every trial, whose prompts the controls have compared.
    """
    trials = [table.results.trial_answers[arm, seed] for seed in seeds]
    asked = [name for name in (trials[0] if trials else ()) if task in (None, name)]
    return [np.stack([trial[name].right for trial in trials]) for name in asked]


def questions_asked(table: Table, arm: str, seed: int, task: str | None = None) -> int:
    """Questions that a trial answered at all numbers of shots, of one task or of all."""
    answers = table.results.trial_answers[arm, seed]
    return sum(of.asked for name, of in answers.items() if task in (None, name))
