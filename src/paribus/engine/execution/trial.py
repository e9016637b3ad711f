"""A trial from start to seal. A trial is a pure function of (study, arm, seed).

Here the rooms meet that do not know each other: data, model, training, probes and evaluation.
Trials of one model can share a stack; each still leaves a folder of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from paribus.engine.data import Dataset
from paribus.engine.evaluation.harness import SharedRequests
from paribus.engine.execution.checkpoints import StackCheckpoints
from paribus.engine.execution.checks.causality import require_causal_training
from paribus.engine.execution.heldout_curve import HeldOutCurve
from paribus.engine.execution.leaving import Leaving, Left
from paribus.engine.execution.record import TrainedStack, has_diverged, record
from paribus.engine.execution.resuming import identity, machine, restore, save
from paribus.engine.execution.suite import suite_folder
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.memory import free_unused
from paribus.engine.machine.timing import wait
from paribus.results import ResultsFolder, TrialFolder
from paribus.study import Study, custom_code
from paribus.study.importing import same_settings

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
    def arms(self) -> list[str]:
        """The arm of each replica."""
        return [arm for arm, _ in self.trials]

    @property
    def folders(self) -> list[TrialFolder]:
        """The folder of each replica."""
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
    stack = _Stack(task, dataset)
    on_resume(stack.trainer.t, stack.words)
    stack.begin()
    with leaving.held(), same_settings(f"training trial {stack.labels}"):
        if not stack.train(on_progress, leaving):
            return False
    wait(task.device)  # a GPU works on after the last step was handed to it
    seconds = stack.seconds
    if len(task.trials) > 1:
        # What is left when recording is killed goes on as the stack that it was trained in.
        stack.checkpoint(seconds)
    try:
        leaving.check()
        stack.record(seconds)
    except Left:
        with leaving.held():
            stack.checkpoint(seconds)
        raise
    stack.checkpoints.remove()
    return True


class _Stack:
    """The trials of a task on their way from the first step, or their checkpoint, to the seal.

    Attributes:
        trainer: their state.
        checkpoints: where it is saved.
        words: why a checkpoint could not be gone on from; or empty.
        todo: (replica, folder) of those that are not finished yet.
    """

    def __init__(self, task: StackTask, dataset: Dataset) -> None:
        study, seeds = task.study, [seed for _, seed in task.trials]
        settings = [study.setting(arm) for arm in task.arms]
        self.task, self.dataset = task, dataset
        self.trainer = build_stack(
            study, settings, seeds, dataset, task.device, strict=False, graphs=task.graphs
        )
        self.checkpoints = StackCheckpoints(task.results.path, task.trials)
        self.curve = HeldOutCurve(study, settings, task.arms, dataset, task.device)
        self._identity = identity(study, task.arms, dataset, self.trainer)
        self._earlier, self._machines, self.words = restore(
            self.trainer, self.checkpoints, self._identity, self.curve
        )
        self._here = machine(task.device)
        if self._here not in self._machines:
            self._machines.append(self._here)
        self._began = time.monotonic()
        self._measuring = 0.0  # seconds that the curve took
        self.todo = [(r, folder) for r, folder in enumerate(task.folders) if not folder.is_finished]

    @property
    def labels(self) -> str:
        """The trials that are not finished yet, in words."""
        return ", ".join(folder.label for _, folder in self.todo)

    @property
    def seconds(self) -> float:
        """Spent on training so far, earlier runs included, and without the curve."""
        return self._earlier + time.monotonic() - self._began - self._measuring

    def begin(self) -> None:
        """Write what the parameters start from; the clock starts."""
        for replica, folder in self.todo:
            folder.write_json("initial.json", self.trainer.initial_records[replica])
        self._began = time.monotonic()

    def checkpoint(self, seconds: float) -> None:
        """Save all replicas, on whose training `seconds` were spent."""
        save(
            *(self.trainer, self.checkpoints, self._identity, seconds, self.curve),
            self._machines,
        )

    def train(self, on_progress: Callable[[int, list[float]], None], leaving: Leaving) -> bool:
        """Train to the end; False, with a checkpoint, where it is asked to leave before."""
        trainer = self.trainer
        last_checkpoint = last_progress = time.monotonic()
        kept_steps = frozenset(trainer.setting.kept_steps)
        self._measure()  # the point before the first step
        while trainer.t < trainer.setting.iterations:
            trainer.step()
            if trainer.t in kept_steps:  # before a checkpoint, which a run would go on from without
                for replica, folder in self.todo:
                    folder.write_weights(trainer.parameters(replica), trainer.t)
            self._measure()
            now = time.monotonic()
            if leaving.asked or now - last_checkpoint >= self.task.checkpoint_seconds:
                self.checkpoint(self.seconds)
                last_checkpoint = time.monotonic()  # however long the writing took
            if leaving.asked:
                return False
            if now - last_progress >= PROGRESS_SECONDS:
                on_progress(trainer.t, trainer.last_losses)
                last_progress = now
        on_progress(trainer.t, trainer.last_losses)
        return True

    def _measure(self) -> None:
        """A point of the held-out curve, where one is due."""
        if self.curve.is_due(self.trainer.t):
            wait(self.task.device)
            self._measuring += self.curve.measure(self.trainer, self.seconds)

    def record(self, seconds: float) -> None:
        """Show that the stack reads the past alone; evaluate, record and seal its trials."""
        study, trainer = self.task.study, self.trainer
        free_unused(self.task.device)  # what a step takes, evaluation does not
        diverged = [r for r in range(len(trainer.seeds)) if has_diverged(study, trainer, r)]
        causality = require_causal_training(
            f"trial {self.labels}",
            trainer,
            self.dataset,
            gradients=False,
            is_own=bool(custom_code(study)),
            diverged=diverged,
        )
        suite = suite_folder(study, self.task.results)
        trials = self.task.trials
        requests = SharedRequests() if len(self.todo) > 1 else None
        trained = TrainedStack(
            study,
            self.dataset,
            trainer,
            trials,
            suite,
            seconds,
            causality,
            self.curve,
            [one for one in self._machines if one != self._here],
            requests,
        )
        record(trained, self.todo)
