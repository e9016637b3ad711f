"""First steps of arms with custom code, trained again and compared bit for bit with their record.

The dry run makes a step twice within seconds, in one process: what depends on the clock, on the
process or on a file that changes while a study runs passes it. So the registered trial of every
such arm is trained again for its registered steps once the study is trained, side by side with the
trials that it was trained with, in a process that has done nothing before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from paribus.execution.pool import Message, Pool
from paribus.results import ResultsFolder
from paribus.results.registration import repetitions
from paribus.study import Study

if TYPE_CHECKING:
    import torch

    from paribus.data import Dataset

# What must be equal for a trial to be trained again to the same bits.
MACHINE = ("code", "packages", "python", "processor", "device", "threads")
COMPARED = ("train_loss", "grad_norm")


def retrain(pool: Pool, study: Study, results: ResultsFolder, say: Callable[[str], object]) -> None:
    """Train again what is registered and was not yet, and write `repeated.json`.

    A trial of another machine cannot be compared to the bit: that is a warning, and it stays open.
    """
    done = results.read_repeated(study.arms)
    asked: list[Message] = [
        {"do": "train again", "arm": arm, "seed": one["seed"], "steps": one["steps"]}
        for arm, one in repetitions(results).items()
        if arm not in done
    ]
    if not asked:
        return
    for steps in dict.fromkeys(message["steps"] for message in asked):
        of = [f"{m['arm']}/seed-{m['seed']}" for m in asked if m["steps"] == steps]
        say(f"training again {steps} steps of {', '.join(of)}")
    answers = pool.ask_fresh(
        asked, "trained again", lambda m: f"on {m['arm']}/seed-{m['seed']}, which it trained again"
    )
    for message, answer in zip(asked, answers, strict=True):
        found = answer["found"]
        if found["elsewhere"]:
            logging.getLogger("paribus").warning(
                "%s/seed-%d cannot be trained again to the same bits here (another %s); the "
                "control 'repeatable' is not proven",
                *(message["arm"], message["seed"], ", ".join(found["elsewhere"])),
            )
            continue
        trial = results.trial(message["arm"], message["seed"])
        about = {"seed": trial.seed, "steps": message["steps"], "trial": trial.seal}
        done[trial.arm] = about | {"differs_at": found["differs_at"], "differs": found["differs"]}
    if done:
        results.write_repeated(done)


def train_again(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    task: Message,
    graphs: bool = True,
) -> dict[str, Any]:
    """In a worker: the first `task["steps"]` steps of a finished trial, against its record.

    Returns `elsewhere`, what of the machine is another; `differs_at`, the first step at which a
    measured value has other bits, None where none has; and `differs`, what differs there.
    """
    from paribus.machine.assembly import build_stack
    from paribus.machine.environment import environment

    arm, seed = task["arm"], task["seed"]
    trial = results.trial(arm, seed)
    there = trial.read_json("environment.json")
    here = environment(device, 1)
    elsewhere = [key for key in MACHINE if there.get(key) != here[key]]
    nothing = {"elsewhere": elsewhere, "differs_at": None, "differs": ""}
    if elsewhere:
        return nothing
    trials = [(a, s) for a, s in trial.read_json("trial.json")["stack"]]
    settings, seeds = [study.setting(a) for a, _ in trials], [s for _, s in trials]
    stack = build_stack(study, settings, seeds, dataset, device, strict=False, graphs=graphs)
    for _ in range(task["steps"]):
        stack.step()
    measured = stack.state(trials.index((arm, seed))).measured
    recorded = trial.read_columns("steps.parquet", list(COMPARED))
    differing: list[tuple[int, str]] = []
    for name in COMPARED:
        ours = measured[:, list(stack.columns).index(name)]
        theirs = recorded[name].to_numpy()[: len(ours)].astype(ours.dtype)
        for step in np.flatnonzero(~_same(ours, theirs))[:1].tolist():
            words = f"{name} {ours[step]:.9g}, and {theirs[step]:.9g} is recorded"
            differing.append((step + 1, words))
    if differing:
        nothing["differs_at"], nothing["differs"] = min(differing, key=lambda found: found[0])
    return nothing


def _same(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Where two columns are equal; a replica that has diverged has no values any more."""
    return (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
