"""A trial from start to seal. A trial is a pure function of (study, arm, seed).

Here the rooms meet that do not know each other: data, model, training, probes and evaluation.
Trials of one model can share a stack; each still leaves a folder of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from paribus.data import Dataset
from paribus.execution.causality import require_causal_training
from paribus.execution.leaving import Leaving
from paribus.execution.record import record
from paribus.execution.suite import suite_folder
from paribus.probes import study_probes
from paribus.results import ResultsFolder, TrialFolder
from paribus.study import Setting, Study
from paribus.training import ReplicaState, Trainer

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
    leaving: Leaving,
) -> bool:
    """Train, evaluate and record the task's trials; False where it was asked to stop before.

    `on_progress(t, losses)` hears of the steps done and each replica's training loss. A stopped
    stack leaves a checkpoint from which the next call goes on; with the seeds that it had, to the
    same bytes.
    """
    settings = [task.study.setting(arm) for arm, _ in task.trials]
    seeds = [seed for _, seed in task.trials]
    stack = build_stack(
        task.study, settings, seeds, dataset, task.device, strict=False, graphs=task.graphs
    )
    seconds, size = _restore(stack, task.folders)
    for folder, initial in zip(task.folders, stack.initial_records, strict=True):
        folder.write_json("initial.json", initial)

    began = last_checkpoint = last_progress = time.monotonic()
    with leaving.held():
        while stack.t < stack.setting.iterations:
            stack.step()
            now = time.monotonic()
            if leaving.asked or now - last_checkpoint >= task.checkpoint_seconds:
                _write_checkpoints(stack, task.folders, seconds + now - began, size)
                last_checkpoint = time.monotonic()  # however long the writing took
            if leaving.asked:
                return False
            if now - last_progress >= PROGRESS_SECONDS:
                on_progress(stack.t, stack.last_losses)
                last_progress = now
    on_progress(stack.t, stack.last_losses)

    training_seconds = seconds + time.monotonic() - began
    if size > 1:
        # What is left when recording is interrupted goes on as the stack that it was trained in.
        _write_checkpoints(stack, task.folders, training_seconds, size)
    labels = ", ".join(folder.label for folder in task.folders)
    causality = require_causal_training(f"trial {labels}", stack, dataset, gradients=False)
    suite = suite_folder(task.study, task.results)
    for replica, folder in enumerate(task.folders):
        record(
            task.study, folder, stack, replica, dataset, training_seconds, suite, size, causality
        )
    return True


def build_stack(
    study: Study,
    setting: Setting | Sequence[Setting],
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    *,
    strict: bool = True,
    graphs: bool = True,
) -> Trainer:
    """A stack as every trial has it: the study's probes and own modules."""
    return Trainer(
        setting,
        seeds,
        dataset,
        folder=study.folder,
        device=device,
        probes=study_probes(study),
        strict=strict,
        graphs=graphs,
    )


def _restore(stack: Trainer, folders: list[TrialFolder]) -> tuple[float, int]:
    """Go on from the folders' checkpoints, if all have one.

    Returns the seconds already spent, and how many replicas were trained side by side: of a trial
    whose training is done, as many as there were then.
    """
    found = [folder.read_checkpoint() for folder in folders]
    loaded = [checkpoint for checkpoint in found if checkpoint is not None]
    if len(loaded) < len(folders) or len({about["t"] for _, about in loaded}) != 1:
        return 0.0, len(stack.seeds)
    stack.restore(
        [
            ReplicaState(about["t"], arrays, about["batch_digest"], about["diverged_at"])
            for arrays, about in loaded
        ]
    )
    abouts = [about for _, about in loaded]
    done = stack.t == stack.setting.iterations
    size = max(about["stack"] for about in abouts) if done else len(stack.seeds)
    return max(about["seconds"] for about in abouts), size


def _write_checkpoints(
    stack: Trainer, folders: list[TrialFolder], seconds: float, size: int
) -> None:
    for replica, folder in enumerate(folders):
        state = stack.state(replica)
        about = {
            "t": state.t,
            "batch_digest": state.batch_digest,
            "diverged_at": state.diverged_at,
            "seconds": seconds,
            "stack": size,
        }
        folder.write_checkpoint(state.arrays, about)
