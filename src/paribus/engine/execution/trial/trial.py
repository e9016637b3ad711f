"""Training and recording of the trials in a stack.

A trial is a pure function of (study, arm, seed). Trials that train the same model can share a
stack; each has its own results folder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from paribus.digests import digest, package_digest
from paribus.engine.data import Dataset
from paribus.engine.execution.trial.record import HeldOutCurve, record
from paribus.engine.execution.trial.stacks import Checkpoint, StackCheckpoints, step_of
from paribus.engine.machine.environment import environment, free_unused
from paribus.engine.machine.steps import build_stack, wait
from paribus.engine.training import ReplicaState
from paribus.errors import ParibusError
from paribus.files import remove_folder
from paribus.results import ResultsFolder, package_versions
from paribus.results.software import SAME_BITS
from paribus.runs.processes import Leaving, Left
from paribus.study import Study, measuring_record, own_digests
from paribus.study.study import substance
from paribus.study.trainer import Trial

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks

PROGRESS_SECONDS = 0.5
PACKAGES = ("torch", "numpy")  # their saved states may be incompatible with other versions

OnProgress = Callable[[int, list[float]], None]


class Stack:
    """Trials that are trained together, from the first step or from a checkpoint.

    Trials that are already finished are trained again, so that the size of the stack stays the
    same, but keep their records.

    Attributes:
        trainer: trainer of all replicas.
        checkpoints: checkpoints of the stack.
        curve: held-out curve.
        folders: folder of each trial.
    """

    def __init__(
        self,
        study: Study,
        trials: Sequence[Trial],
        results: ResultsFolder,
        dataset: Dataset,
        device: torch.device,
        *,
        checkpoint_seconds: float,
        graphs: bool = True,
        ranks: Ranks | None = None,
        owner: str = "",
    ) -> None:
        """Build a stack, and restore its newest usable checkpoint if there is one.

        Args:
            trials: (arm, seed) of each replica.
            checkpoint_seconds: interval between checkpoints, in seconds.
            graphs: whether to replay steps as CUDA graphs.
            ranks: processes that train a single trial together, or None for a single process.
            owner: name of the worker, used in names of checkpoints.
        """
        arms, seeds = [arm for arm, _ in trials], [seed for _, seed in trials]
        self.study, self.dataset = study, dataset
        self._device, self._checkpoint_seconds, self._ranks = device, checkpoint_seconds, ranks
        self.trainer = build_stack(
            *(study, [study.setting(arm) for arm in arms], seeds, dataset, device),
            strict=False,
            graphs=graphs,
            ranks=ranks,
        )
        self._writes = ranks is None or ranks.is_first
        same = identity(study, arms, dataset, device)
        self.checkpoints = StackCheckpoints(results.path, trials, same, owner)
        self.curve = HeldOutCurve(study, arms[0], dataset, device)
        self.folders = [results.trial(*trial) for trial in trials]
        self._todo = [
            (r, folder) for r, folder in enumerate(self.folders) if not folder.is_finished
        ]
        self._earlier_seconds, self._machines = 0.0, list[dict[str, Any]]()
        self._resume()
        self._here = machine(device, ranks)
        self._machines = [m for m in self._machines if m != self._here]
        self._began, self._curve_seconds = time.monotonic(), 0.0

    def _resume(self) -> None:
        """Restore the newest usable checkpoint, which rank 0 selects for all ranks."""
        ranks, failures, chosen = self._ranks, list[str](), None
        if ranks is not None and not self._writes:
            (chosen,) = ranks.from_first([0])
        for path in self.checkpoints.paths():
            if chosen in (None, step_of(path)):
                try:
                    self._restore(self.checkpoints.read(path))
                    break
                except ParibusError as error:
                    failures.append(str(error).partition(";")[0])
        t = self.trainer.t
        if chosen is None:
            self.checkpoints.remove_after(t)
            if ranks is not None:
                ranks.from_first([t])
        elif t != chosen:
            raise ParibusError(
                f"this rank cannot find the checkpoint for step {chosen}; give all ranks access "
                "to the same results folder",
                code="missing",
            )
        if failures:
            logging.getLogger("paribus").warning(
                "%s: the newest checkpoint cannot be used (%s); training resumes from step %d",
                *(self.folders[0].label, failures[0], t),
            )

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state in a checkpoint, or raise ParibusError if it is damaged."""
        saved = checkpoint.state
        self.trainer.restore(
            [
                ReplicaState(checkpoint.t, arrays, state["batch_digest"], state["diverged_at"])
                for arrays, state in zip(checkpoint.states(), saved["replicas"], strict=True)
            ]
        )
        self.curve.points = saved["curve"]
        self._earlier_seconds, self._machines = saved["seconds"], saved["machines"]

    @property
    def seconds(self) -> float:
        """Training time so far in seconds, including earlier runs but not the held-out curve."""
        return self._earlier_seconds + time.monotonic() - self._began - self._curve_seconds

    def checkpoint(self, seconds: float) -> None:
        """Write a checkpoint of all replicas and the curve.

        Args:
            seconds: training time so far, in seconds.
        """
        if not self._writes:
            return
        trainer, replicas = self.trainer, range(len(self.folders))
        histories = map(trainer.history, replicas)
        saved = {
            "seconds": seconds,
            "replicas": [
                {"batch_digest": h.batch_digest, "diverged_at": h.diverged_at} for h in histories
            ],
            "curve": self.curve.points,
            "machines": [*self._machines, self._here],
        }
        # One state at a time, because each may be large.
        states = (trainer.state(replica).arrays for replica in replicas)
        self.checkpoints.write(trainer.t, states, saved)

    def run(self, on_progress: OnProgress, leaving: Leaving) -> None:
        """Train, evaluate and record the trials.

        If asked to stop early, write a checkpoint and raise Left. Resuming from the checkpoint
        produces bit-identical results.

        Args:
            on_progress: called with the number of completed steps and each replica's training loss.
            leaving: handler of stop requests.
        """
        with leaving.hold():
            self._train(on_progress, leaving)
        if not self._writes:
            return
        wait(self._device)
        seconds = self.seconds
        if len(self.folders) > 1 or self._ranks:
            self.checkpoint(seconds)  # if recording is killed, it resumes from here
        try:
            if leaving.asked:
                raise Left
            free_unused(self._device)  # evaluation allocates blocks of other sizes than a step
            for replica, folder in self._todo:
                record(
                    *(self.study, self.trainer, replica, self.dataset, folder),
                    *(self.checkpoints, self.curve),
                    seconds=seconds,
                    earlier_machines=self._machines,
                )
        except Left:
            with leaving.hold():
                self.checkpoint(seconds)
            raise
        remove_folder(self.checkpoints.path)

    def _train(self, on_progress: OnProgress, leaving: Leaving) -> None:
        """Train to the last step, or write a checkpoint and raise Left if asked to stop."""
        trainer = self.trainer
        last_checkpoint = last_progress = time.monotonic()
        kept_steps = frozenset(trainer.setting.kept_steps)
        self._measure_curve()
        while trainer.t < trainer.setting.iterations:
            trainer.step()
            if trainer.t in kept_steps and self._writes:  # before a checkpoint of this step
                for replica, folder in self._todo:
                    kept = self.checkpoints.kept(folder)
                    kept.write_weights(trainer.parameters(replica), trainer.t)
            self._measure_curve()
            now = time.monotonic()
            leaves, is_due = leaving.asked, now - last_checkpoint >= self._checkpoint_seconds
            if self._ranks is not None:  # rank 0 decides for all
                leaves, is_due = map(bool, self._ranks.from_first([leaves, is_due]))
            if leaves or is_due:
                self.checkpoint(self.seconds)
                last_checkpoint = time.monotonic()  # excludes the time of writing
            if leaves:
                raise Left
            if now - last_progress >= PROGRESS_SECONDS:
                on_progress(trainer.t, trainer.last_losses)
                last_progress = now
        on_progress(trainer.t, trainer.last_losses)

    def _measure_curve(self) -> None:
        """Add a point to the held-out curve if one is due."""
        if self._writes and self.curve.is_due(self.trainer.t):
            wait(self._device)
            self._curve_seconds += self.curve.measure(self.trainer)


def machine(device: torch.device, ranks: Ranks | None = None) -> dict[str, Any]:
    """Return the machine properties that may affect the exact result of a training step."""
    environment_here = environment(device, 1)
    size = {} if ranks is None else {"ranks": ranks.size}
    return {key: environment_here[key] for key in SAME_BITS} | size


def identity(study: Study, arms: Sequence[str], dataset: Dataset, device: torch.device) -> str:
    """Return the digest of all inputs that must match to resume a stack from a checkpoint.

    The study's seeds are excluded, because checkpoints name their trials and a study may be
    extended by more seeds.
    """
    dump = substance(study.model_dump(mode="json"))
    del dump["seeds"]
    own = {arm: own_digests(study.setting(arm), study.folder) for arm in dict.fromkeys(arms)}
    code = [package_digest(), package_versions(PACKAGES), own, measuring_record(study)]
    return digest([dump, dataset.digests, code, device.type])
