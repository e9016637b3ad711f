"""A trial from start to seal. A trial is a pure function of (study, arm, seed).

Here the rooms meet that do not know each other: data, model, training, probes and evaluation.
Trials of one model can share a stack; each still leaves a folder of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from paribus.digests import digest, package_digest
from paribus.engine.data import Dataset
from paribus.engine.evaluation.harness import SharedRequests
from paribus.engine.execution.trial.checkpoints import (
    Arrays,
    Checkpoint,
    StackCheckpoints,
)
from paribus.engine.execution.trial.heldout_curve import HeldOutCurve
from paribus.engine.execution.trial.record import TrainedStack, record
from paribus.engine.execution.trial.suite import suite_folder
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.clock import wait
from paribus.engine.machine.environment import environment
from paribus.engine.machine.memory import free_unused
from paribus.engine.training import ReplicaState, Trainer
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, TrialFolder, package_versions
from paribus.results.software import SAME_BITS
from paribus.runs.processes import Leaving, Left
from paribus.study import Study, measuring_record, own_digests
from paribus.study.study import substance

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks

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
    ranks: Ranks | None = None  # the processes that train the only trial; None is this one alone
    owner: str = ""  # the worker, whose name its checkpoints have

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
    stack = Stack(task, dataset)
    on_resume(stack.trainer.t, stack.words)
    stack.begin()
    with leaving.held():
        if not stack.train(on_progress, leaving):
            return False
    if not stack.writes:
        return True
    wait(task.device)  # a GPU works on after the last step was handed to it
    seconds = stack.seconds
    if len(task.trials) > 1 or task.ranks:
        # What is left when recording is killed goes on as the stack that it was trained in.
        stack.checkpoint(seconds)
    try:
        leaving.check()
        stack.record(seconds)
    except Left:
        with leaving.held():
            stack.checkpoint(seconds)
        raise
    stack.remove_checkpoints()
    return True


class Stack:
    """The trials of a task on their way from the first step, or their checkpoint, to the seal.

    Attributes:
        trainer: their state.
        checkpoints: where it is saved.
        words: why a checkpoint could not be gone on from; or empty.
        todo: (replica, folder) of those that are not finished yet.
    """

    def __init__(self, task: StackTask, dataset: Dataset) -> None:
        study, seeds = task.study, [seed for _, seed in task.trials]
        settings = [study.setting(arm) for arm, _ in task.trials]
        self.task, self.dataset = task, dataset
        self.trainer = build_stack(
            *(study, settings, seeds, dataset, task.device),
            strict=False,
            graphs=task.graphs,
            ranks=task.ranks,
        )
        self.checkpoints = StackCheckpoints(task.results.path, task.trials, task.owner)
        self.curve = HeldOutCurve(study, settings, task.arms, dataset, task.device)
        self._identity = identity(study, task.arms, dataset, self.trainer)
        self._earlier, self._machines, self.words = self._restored()
        self._here = machine(task.device, task.ranks)
        if self._here not in self._machines:
            self._machines.append(self._here)
        self._began = time.monotonic()
        self._measuring = 0.0  # seconds that the curve took
        self.todo = [(r, folder) for r, folder in enumerate(task.folders) if not folder.is_finished]

    def _restored(self) -> tuple[float, list[Machine], str]:
        """Resume from a checkpoint; every rank from the one that rank 0 has found."""
        ranks = self.task.ranks
        found = self._restore_newest() if self.writes else (0.0, [], "")
        if ranks is not None:
            (t,) = ranks.from_first([self.trainer.t])
            if t and not ranks.is_first:
                self._take_up(self.checkpoints.at(t))
        return found

    def _restore_newest(self) -> tuple[float, list[Machine], str]:
        """Go on from the newest checkpoint that can be used, the trials and their curve.

        Returns the seconds already spent on training, the machines that it was trained on, and one
        line where a checkpoint could not be used.
        """
        failures: list[str] = []
        for found in self.checkpoints.newest_first():
            try:
                if not isinstance(found, Checkpoint):
                    raise found
                found.require(self._identity)
                self._take_up(found)
            except ParibusError as error:
                failures.append(str(error).partition(";")[0])
                continue
            about = found.about
            self.curve.points = self.curve.points_of(about["curve"])
            self.checkpoints.remove_after(found.t)
            words = _in_words(self.checkpoints, failures, f"training goes on from step {found.t}")
            return about["seconds"], about["machines"], words
        self.remove_checkpoints()
        return 0.0, [], _in_words(self.checkpoints, failures, "training starts again")

    def _take_up(self, found: Checkpoint) -> None:
        """Go on from the state of a checkpoint. Raises ParibusError where that cannot be."""
        self.trainer.restore(
            [
                ReplicaState(found.t, arrays, one["batch_digest"], one["diverged_at"])
                for arrays, one in zip(found.states(), found.about["replicas"], strict=True)
            ]
        )

    def remove_checkpoints(self) -> None:
        """Remove what is no longer gone on from."""
        if self.writes:
            self.checkpoints.remove()

    @property
    def labels(self) -> str:
        """The trials that are not finished yet, in words."""
        return ", ".join(folder.label for _, folder in self.todo)

    @property
    def seconds(self) -> float:
        """Spent on training so far, earlier runs included, and without the curve."""
        return self._earlier + time.monotonic() - self._began - self._measuring

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes records."""
        return self.task.ranks is None or self.task.ranks.is_first

    def begin(self) -> None:
        """Write what the parameters start from; the clock starts."""
        for replica, folder in self.todo if self.writes else ():
            folder.write_json("initial.json", self.trainer.initial_records[replica])
        self._began = time.monotonic()

    def checkpoint(self, seconds: float) -> None:
        """Save all replicas and the curve so far, on whose training `seconds` were spent."""
        if not self.writes:
            return
        trainer = self.trainer
        replicas: list[dict[str, Any]] = []

        def states() -> Iterator[Arrays]:
            for replica in range(len(trainer.seeds)):
                state = trainer.state(replica)  # one at a time: it may be as large as the memory
                told = {"batch_digest": state.batch_digest, "diverged_at": state.diverged_at}
                replicas.append(told)
                yield state.arrays

        about = {
            "seconds": seconds,
            "stack": len(trainer.seeds),
            "replicas": replicas,
            "curve": self.curve.saved,
            "machines": self._machines,
        }
        self.checkpoints.write(trainer.t, states(), identity=self._identity, about=about)

    def train(self, on_progress: Callable[[int, list[float]], None], leaving: Leaving) -> bool:
        """Train to the end; False, with a checkpoint, where it is asked to leave before."""
        trainer = self.trainer
        last_checkpoint = last_progress = time.monotonic()
        kept_steps = frozenset(trainer.setting.kept_steps)
        self._measure()  # the point before the first step
        while trainer.t < trainer.setting.iterations:
            trainer.step()
            if trainer.t in kept_steps:  # before a checkpoint, which a run would go on from without
                for replica, folder in self.todo if self.writes else ():
                    folder.write_weights(trainer.parameters(replica), trainer.t)
            self._measure()
            now = time.monotonic()
            is_due = now - last_checkpoint >= self.task.checkpoint_seconds
            leaves, is_due = self._decided(leaving.asked, is_due)
            if leaves or is_due:
                self.checkpoint(self.seconds)
                last_checkpoint = time.monotonic()  # however long the writing took
            if leaves:
                return False
            if now - last_progress >= PROGRESS_SECONDS:
                on_progress(trainer.t, trainer.last_losses)
                last_progress = now
        on_progress(trainer.t, trainer.last_losses)
        return True

    def _decided(self, leaves: bool, is_due: bool) -> tuple[bool, bool]:
        """Return whether to leave, and whether a checkpoint is due; rank 0 decides for all."""
        if self.task.ranks is not None:
            leaves, is_due = map(bool, self.task.ranks.from_first([leaves, is_due]))
        return leaves, is_due

    def _measure(self) -> None:
        """Add a point to the held-out curve, where one is due."""
        if self.writes and self.curve.is_due(self.trainer.t):
            wait(self.task.device)
            self._measuring += self.curve.measure(self.trainer, self.seconds)

    def record(self, seconds: float) -> None:
        """Evaluate, record and seal the trials of the stack."""
        study, trainer = self.task.study, self.trainer
        free_unused(self.task.device)  # what a step takes, evaluation does not
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
            self.curve,
            [one for one in self._machines if one != self._here],
            requests,
        )
        record(trained, self.todo)


PACKAGES = ("torch", "numpy")  # whose states are not promised to fit those of other versions

Machine = dict[str, Any]


def machine(device: torch.device, ranks: Ranks | None = None) -> Machine:
    """Return what the last bits of a training may depend on: it is continued elsewhere, on the
    record.
    """
    here = environment(device, 1)
    over = {} if ranks is None else {"ranks": ranks.size}
    return {key: here[key] for key in SAME_BITS} | over


def identity(study: Study, arms: Sequence[str], dataset: Dataset, stack: Trainer) -> dict[str, Any]:
    """Return what has to be the same for a checkpoint of `arms` to be gone on from.

    Seeds are left out: those of the stack are its trials', and others may be added to a study.
    """
    dump = substance(study.model_dump(mode="json"))
    own = {arm: own_digests(study.setting(arm), study.folder) for arm in dict.fromkeys(arms)}
    return {
        "study": digest({key: value for key, value in dump.items() if key != "seeds"}),
        "data": dataset.digests,
        "own code": own,
        "own probes": measuring_record(study)["own_probes"],
        "code": package_digest(),
        "version": package_versions(PACKAGES),
        "device": stack.device.type,
    }


def _in_words(checkpoints: StackCheckpoints, failures: list[str], way_on: str) -> str:
    """Say, in one line, why the newest checkpoint was not gone on from; nothing where it was."""
    if not failures:
        return ""
    labels = ", ".join(f"{arm}/seed-{seed}" for arm, seed in checkpoints.trials[:4])
    more = len(checkpoints.trials) - 4
    labels += f" and {more} more" if more > 0 else ""
    return f"{labels}: the newest checkpoint cannot be used ({failures[0]}); {way_on}"
