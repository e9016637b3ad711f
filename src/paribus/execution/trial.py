"""A trial from start to seal. A trial is a pure function of (study, arm, seed).

Here the rooms meet that do not know each other: data, model, training, probes and evaluation.
Trials of one model can share a stack; each still leaves a folder of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from paribus.data import Dataset
from paribus.errors import ParibusError
from paribus.execution.checks.causality import require_causal_training
from paribus.execution.leaving import Leaving, Left
from paribus.execution.record import record
from paribus.execution.resuming import identity, restore, save
from paribus.execution.suite import suite_folder
from paribus.machine.assembly import build_stack
from paribus.machine.timing import wait
from paribus.results import ResultsFolder, TrialFolder
from paribus.results.checkpoints import StackCheckpoints
from paribus.study import Study
from paribus.study.guard import require_unchanged, watched
from paribus.training import Trainer

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class StackTask:
    """Trials (arm, seed) to be trained side by side, all at the same step."""

    study: Study
    trials: tuple[tuple[str, int], ...]
    results: ResultsFolder
    device: torch.device
    checkpoint_seconds: float
    graphs: bool = True

    @property
    def folders(self) -> list[TrialFolder]:
        return [self.results.trial(arm, seed) for arm, seed in self.trials]


def run_stack(
    task: StackTask,
    dataset: Dataset,
    *,
    on_progress: Callable[[int, list[float]], None],
    on_resume: Callable[[int, str], None],
    leaving: Leaving,
) -> bool:
    """Train, evaluate and record the task's trials; False where it was asked to leave before.

    Trials of the stack that are finished already are trained along: their records stay as they
    are, and the others are trained in a stack of the size that they began in.

    `on_progress(t, losses)` is called with the steps done and each replica's training loss, and
    `on_resume(t, words)` once with the step from which training goes on, and with one line where a
    checkpoint could not be used. A stack that leaves writes a checkpoint from which the next call
    goes on, to the same bytes.
    """
    arms, seeds = [arm for arm, _ in task.trials], [seed for _, seed in task.trials]
    settings, before = [task.study.setting(arm) for arm in arms], watched()
    stack = build_stack(
        task.study, settings, seeds, dataset, task.device, strict=False, graphs=task.graphs
    )
    checkpoints = StackCheckpoints(task.results.path, task.trials)
    same = identity(task.study, arms, dataset, stack)
    earlier, words = restore(stack, checkpoints, same)
    on_resume(stack.t, words)
    todo = [(r, folder) for r, folder in enumerate(task.folders) if not folder.is_finished]
    for replica, folder in todo:
        folder.write_json("initial.json", stack.initial_records[replica])

    began = time.monotonic()

    def keep() -> None:
        for replica, folder in todo:
            folder.write_weights(stack.parameters(replica), stack.t)

    def checkpoint() -> None:
        save(stack, checkpoints, same, earlier + time.monotonic() - began)

    with leaving.held():
        if not _train(stack, task.checkpoint_seconds, checkpoint, keep, on_progress, leaving):
            return False
    labels = ", ".join(folder.label for _, folder in todo)
    try:
        require_unchanged(before, f"training trial {labels}")
    except ParibusError:
        checkpoints.remove()  # what they hold was trained with what was replaced
        raise
    wait(task.device)  # a GPU works on after the last step was handed to it
    seconds = earlier + time.monotonic() - began
    if len(stack.seeds) > 1:
        # What is left when recording is killed goes on as the stack that it was trained in.
        save(stack, checkpoints, same, seconds)
    try:
        leaving.check()
        causality = require_causal_training(f"trial {labels}", stack, dataset, gradients=False)
        suite, trials = suite_folder(task.study, task.results), task.trials
        for replica, folder in todo:
            record(task.study, folder, stack, replica, dataset, seconds, suite, trials, causality)
    except Left:
        with leaving.held():
            save(stack, checkpoints, same, seconds)
        raise
    checkpoints.remove()
    return True


def _train(
    stack: Trainer,
    checkpoint_seconds: float,
    checkpoint: Callable[[], None],
    keep: Callable[[], None],
    on_progress: Callable[[int, list[float]], None],
    leaving: Leaving,
) -> bool:
    """Train to the end; False, with a checkpoint, where it is asked to leave before."""
    last_checkpoint = last_progress = time.monotonic()
    kept_steps = frozenset(stack.setting.kept_steps)
    while stack.t < stack.setting.iterations:
        stack.step()
        if stack.t in kept_steps:
            keep()  # before a checkpoint, which a run would go on from without
        now = time.monotonic()
        if leaving.asked or now - last_checkpoint >= checkpoint_seconds:
            checkpoint()
            last_checkpoint = time.monotonic()  # however long the writing took
        if leaving.asked:
            return False
        if now - last_progress >= PROGRESS_SECONDS:
            on_progress(stack.t, stack.last_losses)
            last_progress = now
    on_progress(stack.t, stack.last_losses)
    return True
