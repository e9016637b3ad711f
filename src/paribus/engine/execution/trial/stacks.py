"""Stacks of trials, which are trained together as replicas of one model, and their checkpoints.

The trials in a stack share one model, so their arms may differ only in learning rate and weight
decay (`Setting.common`). Both trials of a pair are trained in stacks of the same size, because the
summation order in batched matrix products may depend on the size. The size is therefore fixed once
training has begun.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paribus.digests import digest
from paribus.engine.cost import trial_bytes
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.files import remove_folder, whole_folder, write_bytes
from paribus.results import ResultsFolder
from paribus.results.formats import write_plain_json
from paribus.results.trial_folder import TrialFolder
from paribus.schema import KEY, SCHEMA
from paribus.study import Study
from paribus.study.trainer import Trial
from paribus.untrusted_io import LARGEST, read_bytes, read_json

SHARE = 0.7  # of the free memory; the rest is for CUDA graphs, probes and fragmentation


def recorded_size(study: Study, folder: ResultsFolder) -> int:
    """Return the size of a folder's largest finished or unfinished stack, or 0 if it has none."""
    trials = [folder.trial(*trial) for trial in study.trials]
    stacks = [t.read_json("trial.json").get("stack", []) for t in trials if t.is_finished]
    return max(map(len, [*stacks, *begun_stacks(folder.path)]), default=0)


def default_size(
    study: Study, machine: Mapping[str, Any], vocabularies: Mapping[str, int], workers: int
) -> int:
    """Return the default number of trials in a stack.

    The result is 1 on a CPU, or if trials use several devices. Otherwise, each GPU trains its share
    of all trials together, limited by its memory.

    Args:
        machine: properties from `machine_of`.
        vocabularies: vocabulary sizes, keyed by arm.
        workers: number of workers, which share the memory of the GPUs.
    """
    if study.resources.devices_per_trial is not None or machine["device"] == "cpu":
        return 1
    size = math.ceil(len(study.trials) / machine["devices"])
    if machine["memory"] is None:
        return size
    largest = max(trial_bytes(study.setting(a), v) for a, v in vocabularies.items())
    sharing = math.ceil(workers / machine["devices"])
    return max(min(size, int(SHARE * machine["memory"] / sharing / largest)), 1)


def plan_stacks(study: Study, size: int) -> list[list[Trial]]:
    """Group all trials of a study into stacks of at most `size` trials.

    Arms share stacks only if all arms of the study can, so that all stacks have equal sizes.
    Passing the size of the largest stack reproduces the same stacks.
    """
    groups = sharing_arms(study)
    is_shared = len({len(arms) for arms in groups}) == 1 and 1 < len(groups[0]) <= size
    is_shared = is_shared and study.plan is None  # an interim analysis may stop only some arms
    n_seeds = size // (len(groups[0]) if is_shared else 1)
    stacks: list[list[Trial]] = []
    for part in _parts(study):
        for first in range(0, len(part), n_seeds):
            seeds = part[first : first + n_seeds]
            for arms in groups if is_shared else [[arm] for arm in study.arms]:
                stacks.append([(arm, seed) for seed in seeds for arm in arms])
    return stacks


def shared_setting(study: Study, arm: str) -> Setting:
    """Return the settings of an arm that all trials in a stack must share.

    With custom probes, these are all settings, because a stack passes the same setting to probes.
    """
    setting = study.setting(arm)
    return setting if study.probes.own else setting.common


def sharing_arms(study: Study) -> list[list[str]]:
    """Group the arms of a study that can share a stack."""
    groups: dict[Setting, list[str]] = {}
    for arm in study.arms:
        groups.setdefault(shared_setting(study, arm), []).append(arm)
    # Sorted, because the order in a study file may be edited.
    return [sorted(arms) for arms in groups.values()]


def _parts(study: Study) -> list[tuple[int, ...]]:
    """Group seeds that may share a stack, with one group per interim analysis or stage."""
    ends = [*(study.plan.looks if study.plan else study.stages[:1]), len(study.seeds)]
    starts = [0, *ends]
    return [study.seeds[a:b] for a, b in zip(starts, ends, strict=False) if a < b]


FOLDER, ABOUT = "checkpoints", "about.json"
ARRAYS = "replica-{}.safetensors"
KEPT = 2

Arrays = Mapping[str, np.ndarray]


class UnusableError(ParibusError):
    """Raised if training cannot resume from a checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint of a stack, as described in its about.json.

    Attributes:
        path: folder of the checkpoint.
        trials: (arm, seed) of each replica.
        t: number of completed steps.
        identity: digest of all inputs that must match to resume training.
        state: values other than arrays, such as `seconds`.
        files: SHA-256 of each replica's array file.
    """

    path: Path
    trials: tuple[Trial, ...]
    t: int
    identity: str
    state: dict[str, Any]
    files: list[str]

    def states(self) -> list[dict[str, np.ndarray]]:
        """Load the arrays of every replica, or raise UnusableError if a file is damaged."""
        import safetensors.numpy  # imported here, because listing stacks needs no engine

        states = []
        for replica, sha256 in enumerate(self.files):
            content, name = b"", ARRAYS.format(replica)
            with contextlib.suppress(ParibusError):
                content = read_bytes(self.path / name, LARGEST)
            if hashlib.sha256(content).hexdigest() != sha256:
                raise UnusableError(f"{name} is missing or damaged")
            states.append(safetensors.numpy.load(content))
        return states


class StackCheckpoints:
    """Checkpoints of a stack, of which the two newest are kept.

    checkpoints/<id of the stack>/step-<t>.<worker>/
        replica-<r>.safetensors   arrays of one replica
        about.json                trials, state without arrays, and digests; written last
    checkpoints/<id of the stack>/kept/<arm>/seed-<n>/
        weights-<t>.safetensors   intermediate weights, which the trial's record will include

    A checkpoint is written atomically and contains the states of all trials at one step. Each
    worker writes under its own name, and can resume from any worker's checkpoint.

    Args:
        results: results folder of the study.
        trials: (arm, seed) of each replica.
        identity: digest of all inputs that must match to resume training.
        owner: name of the worker.
    """

    def __init__(
        self, results: Path, trials: Sequence[Trial], identity: str = "", owner: str = ""
    ) -> None:
        self.trials, self._identity = tuple(trials), identity
        self._suffix = f".{owner}" if owner else ""
        self.results, self.path = results, results / FOLDER / _id(self.trials)

    def write(self, t: int, states: Iterable[Arrays], state: Mapping[str, Any]) -> None:
        """Write a checkpoint after step t, and remove all but the two newest.

        Args:
            t: number of completed steps.
            states: arrays of each replica.
            state: values other than arrays.
        """
        import safetensors.numpy

        target, files = self.path / f"step-{t}{self._suffix}", list[str]()
        remove_folder(target)
        with whole_folder(target) as folder:
            for replica, arrays in enumerate(states):
                contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
                content = safetensors.numpy.save(contiguous)
                write_bytes(folder / ARRAYS.format(replica), content)
                files.append(hashlib.sha256(content).hexdigest())
            record = {
                KEY: SCHEMA,
                "trials": [list(trial) for trial in self.trials],
                "t": t,
                "identity": self._identity,
                "files": files,
                "state": dict(state),
            }
            write_plain_json(folder / ABOUT, record | {"sha256": digest(record)})
        for old in self.paths()[KEPT:]:
            remove_folder(old)

    def paths(self) -> list[Path]:
        """Return the folders of all checkpoints, newest first."""
        return sorted(self.path.glob("step-*"), key=step_of, reverse=True)

    def read(self, path: Path) -> Checkpoint:
        """Read a checkpoint, or raise UnusableError if it is damaged or has another identity."""
        checkpoint = read_checkpoint(path)
        if (checkpoint.trials, checkpoint.identity) != (self.trials, self._identity):
            raise UnusableError("it was written for a different study, text, code or device")
        return checkpoint

    def kept(self, trial: TrialFolder) -> TrialFolder:
        """Return the temporary folder for a trial's intermediate weights."""
        return replace(trial, path=self.path / "kept" / trial.arm / f"seed-{trial.seed}")

    def copy_kept(self, trial: TrialFolder, target: TrialFolder) -> None:
        """Copy the intermediate weights of `trial` into `target`.

        Raises ParibusError if a file cannot be read.
        """
        for path in self.kept(trial).path.glob("weights-*"):
            write_bytes(target.path / path.name, read_bytes(path, LARGEST))

    def remove_after(self, t: int) -> None:
        """Remove the checkpoints for steps after t."""
        for path in self.paths():
            if step_of(path) > t:
                remove_folder(path)


def begun_stacks(results: Path) -> dict[tuple[Trial, ...], int]:
    """Return the number of completed steps of each unfinished stack, keyed by trials."""
    begun: dict[tuple[Trial, ...], int] = {}
    for path in sorted((results / FOLDER).glob("*/step-*"), key=step_of):
        with contextlib.suppress(UnusableError):
            checkpoint = read_checkpoint(path)
            if path.parent.name == _id(checkpoint.trials):
                begun[checkpoint.trials] = checkpoint.t
    return begun


def keep_stacks(results: Path, stacks: Iterable[Sequence[Trial]]) -> None:
    """Remove the checkpoints of stacks that are not in `stacks`, and the folder if it is empty."""
    kept = {_id(trials) for trials in stacks}
    folder = results / FOLDER
    if folder.is_symlink():  # its target is not ours to remove
        return
    for path in list(folder.glob("*")):
        if path.name not in kept:
            remove_folder(path)
    with contextlib.suppress(OSError):  # missing or not empty
        folder.rmdir()


def step_of(path: Path) -> int:
    """Parse the step in the name of a checkpoint folder, or return -1 for any other name."""
    number = path.name.removeprefix("step-").partition(".")[0]
    return int(number) if number.isdecimal() else -1


def _id(trials: Sequence[Trial]) -> str:
    return digest([list(trial) for trial in trials])[:16]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or raise UnusableError if about.json is missing, damaged or changed."""
    try:
        record = read_json(path / ABOUT)
        sha256 = record.pop("sha256")
    except (ParibusError, KeyError, AttributeError):
        raise UnusableError(f"{ABOUT} is missing or damaged") from None
    if digest(record) != sha256 or record["t"] != step_of(path):
        raise UnusableError(f"{ABOUT} was changed after it was written")
    trials = tuple((arm, seed) for arm, seed in record["trials"])
    values = (record[name] for name in ("t", "identity", "state", "files"))
    return Checkpoint(path, trials, *values)
