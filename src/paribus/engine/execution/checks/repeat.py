"""The first steps of finished trials, trained again and compared with their records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from paribus.engine.execution.workers.messages import Comparison, TrainAgain
from paribus.engine.execution.workers.pool import Pool
from paribus.results import ResultsFolder
from paribus.results.registration import repetitions
from paribus.results.software import SAME_BITS
from paribus.study import Study

if TYPE_CHECKING:
    import torch

    from paribus.engine.data import Dataset


COMPARED = ("train_loss", "grad_norm")


def retrain(pool: Pool, study: Study, results: ResultsFolder, say: Callable[[str], object]) -> None:
    """Train again what is registered and was not yet, and write `repeated.json`.

    A trial of another machine cannot be compared to the bit: that is a warning, and it stays open.
    """
    done = results.read_repeated(study.arms)
    asked = [
        TrainAgain(arm, one["seed"], one["steps"])
        for arm, one in repetitions(results).items()
        if arm not in done
    ]
    if not asked:
        return
    for steps in dict.fromkeys(task.steps for task in asked):
        of = [f"{task.arm}/seed-{task.seed}" for task in asked if task.steps == steps]
        say(f"training again {steps} steps of {', '.join(of)}")
    answers = pool.ask_fresh(
        asked, [f"on {task.arm}/seed-{task.seed}, which it trained again" for task in asked]
    )
    for task, found in zip(asked, answers, strict=True):
        if found.elsewhere:
            logging.getLogger("paribus").warning(
                "%s/seed-%d cannot be trained again to the same bits here (another %s); the "
                "control 'repeatable' is not proven",
                *(task.arm, task.seed, ", ".join(found.elsewhere)),
            )
            continue
        trial = results.trial(task.arm, task.seed)
        about = {"seed": trial.seed, "steps": task.steps, "trial": trial.seal}
        done[trial.arm] = about | {"differs_at": found.differs_at, "differs": found.differs}
    if done:
        results.write_repeated(done)


def train_again(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    task: TrainAgain,
    graphs: bool = True,
) -> Comparison:
    """In a worker: the first `task.steps` steps of a finished trial, against its record."""
    from paribus.engine.machine.assembly import build_stack
    from paribus.engine.machine.environment import environment

    trial = results.trial(task.arm, task.seed)
    there = trial.read_json("environment.json")
    here = environment(device, 1)
    elsewhere = [key for key in ("code", *SAME_BITS) if there.get(key) != here[key]]
    if elsewhere:
        return Comparison(elsewhere)
    trials = [(a, s) for a, s in trial.read_json("trial.json")["stack"]]
    settings, seeds = [study.setting(a, s) for a, s in trials], [s for _, s in trials]
    stack = build_stack(study, settings, seeds, dataset, device, strict=False, graphs=graphs)
    for _ in range(task.steps):
        stack.step()
    measured = stack.state(trials.index((task.arm, task.seed))).measured
    recorded = trial.read_columns("steps.parquet", list(COMPARED))
    differing: list[tuple[int, str]] = []
    for name in COMPARED:
        ours = measured[:, list(stack.columns).index(name)]
        theirs = recorded[name].to_numpy()[: len(ours)].astype(ours.dtype)
        for step in np.flatnonzero(~_same(ours, theirs))[:1].tolist():
            words = f"{name} {ours[step]:.9g}, and {theirs[step]:.9g} is recorded"
            differing.append((step + 1, words))
    if not differing:
        return Comparison([])
    return Comparison([], *min(differing, key=lambda found: found[0]))


def _same(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Compare two columns; a replica that has diverged has no values any more."""
    return (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
