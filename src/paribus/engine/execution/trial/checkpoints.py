"""Checkpoints of stacks in training: each is complete or absent, and the two newest are kept.

checkpoints/<id of the stack>/step-<t>.<worker>/
    replica-<r>-<k>.safetensors   arrays of one replica, in files of about a gigabyte
    about.json                    written last: the stack, its state without arrays, and digests
checkpoints/<id of the stack>/kept/<arm>/seed-<n>/
    weights-<t>.safetensors       weights that the record of the trial will have

A stack is a set of trials that are trained side by side. Its checkpoint holds all of their states
at one step, so that they continue together.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.files import remove_folder, whole_folder, write_bytes
from paribus.results.formats import write_plain_json
from paribus.results.trial_folder import TrialFolder
from paribus.schema import KEY, SCHEMA
from paribus.study.trainer import Trial
from paribus.untrusted_io import WEIGHTS_BYTES, read_bytes, read_json

FOLDER, ABOUT = "checkpoints", "about.json"
KEPT = 2
SHARD_BYTES = 2**30

Arrays = Mapping[str, np.ndarray]


class UnusableError(ParibusError):
    """A checkpoint cannot be used to resume."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, as its about.json describes it.

    Attributes:
        trials: (arm, seed) of each replica.
        t: steps done.
        identity: digests that must match for a run to resume.
        state: values that are not arrays, such as `seconds`.
        shards: for each replica, the SHA-256 of each file.
    """

    path: Path
    trials: tuple[Trial, ...]
    t: int
    identity: dict[str, str]
    state: dict[str, Any]
    shards: list[dict[str, str]]

    def states(self) -> list[dict[str, np.ndarray]]:
        """Return the arrays of every replica. Raises UnusableError for a damaged file."""
        return [self._state(shards) for shards in self.shards]

    def _state(self, shards: Mapping[str, str]) -> dict[str, np.ndarray]:
        import safetensors.numpy  # not at the top: those who only list stacks need no engine

        state: dict[str, np.ndarray] = {}
        for name, sha256 in shards.items():
            content = b""
            with contextlib.suppress(ParibusError):
                content = read_bytes(self.path / Path(name).name, WEIGHTS_BYTES)
            if hashlib.sha256(content).hexdigest() != sha256:
                raise UnusableError(f"{name} is missing or damaged")
            state |= safetensors.numpy.load(content)
        return state


class StackCheckpoints:
    """Checkpoints of one stack. Each worker writes under its own name and resumes from any."""

    def __init__(self, results: Path, trials: Sequence[Trial], owner: str = "") -> None:
        self.trials, self._suffix = tuple(trials), f".{owner}" if owner else ""
        self.path = results / FOLDER / _id(self.trials)

    def write(
        self,
        t: int,
        states: Iterable[Arrays],
        *,
        identity: Mapping[str, str],
        state: Mapping[str, Any],
    ) -> None:
        """Write the checkpoint of step t, with `states` by replica, and remove older ones."""
        target = self.path / f"step-{t}{self._suffix}"
        remove_folder(target)
        with whole_folder(target) as folder:
            record = {
                KEY: SCHEMA,
                "trials": [list(trial) for trial in self.trials],
                "t": t,
                "identity": dict(identity),
                "shards": [_write_shards(folder, r, arrays) for r, arrays in enumerate(states)],
                "state": dict(state),  # complete once all `states` were asked for
            }
            write_plain_json(folder / ABOUT, record | {"sha256": digest(record)})
        for old in self.paths()[KEPT:]:
            remove_folder(old)

    def paths(self) -> list[Path]:
        """Return the folders of all checkpoints, the newest first."""
        return sorted(self.path.glob("step-*"), key=step_of, reverse=True)

    def read(self, path: Path, identity: Mapping[str, str]) -> Checkpoint:
        """Read a checkpoint. Raises UnusableError if it is damaged or has another identity."""
        checkpoint = read_checkpoint(path)
        if checkpoint.trials != self.trials:
            raise UnusableError("it is of other trials")
        if others := [key for key in identity if checkpoint.identity.get(key) != identity[key]]:
            raise UnusableError(f"it is of another {others[0]}")
        return checkpoint

    def kept(self, trial: TrialFolder) -> TrialFolder:
        """Return the folder of weights kept before the last step, until the trial is recorded."""
        return replace(trial, path=self.path / "kept" / trial.arm / f"seed-{trial.seed}")

    def copy_kept(self, trial: TrialFolder, target: TrialFolder) -> None:
        """Copy the kept weights of `trial` into `target`. Raises ParibusError."""
        for path in self.kept(trial).path.glob("weights-*"):
            write_bytes(target.path / path.name, read_bytes(path, WEIGHTS_BYTES))

    def remove_after(self, t: int) -> None:
        """Remove checkpoints of steps later than t."""
        for path in self.paths():
            if step_of(path) > t:
                remove_folder(path)


def begun_stacks(results: Path) -> dict[tuple[Trial, ...], int]:
    """Return the number of steps done by each unfinished stack, keyed by its trials."""
    begun: dict[tuple[Trial, ...], int] = {}
    for path in sorted((results / FOLDER).glob("*/step-*"), key=step_of):
        with contextlib.suppress(UnusableError):
            checkpoint = read_checkpoint(path)
            if path.parent.name == _id(checkpoint.trials):
                begun[checkpoint.trials] = checkpoint.t
    return begun


def keep_stacks(results: Path, stacks: Iterable[Sequence[Trial]]) -> None:
    """Remove the checkpoints of all other stacks, and the folder if it is empty then."""
    kept = {_id(trials) for trials in stacks}
    folder = results / FOLDER
    if folder.is_symlink():  # what it points to is not ours to remove
        return
    for path in list(folder.glob("*")):
        if path.name not in kept:
            remove_folder(path)
    with contextlib.suppress(OSError):  # it is not there, or not empty
        folder.rmdir()


def step_of(path: Path) -> int:
    """Return the step of a checkpoint's folder; -1 for another folder."""
    number = path.name.removeprefix("step-").partition(".")[0]
    return int(number) if number.isdecimal() else -1


def _id(trials: Sequence[Trial]) -> str:
    return digest([list(trial) for trial in trials])[:16]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises UnusableError if its about.json was changed."""
    try:
        record = read_json(path / ABOUT)
        sha256 = record.pop("sha256")
    except (ParibusError, KeyError, AttributeError):
        raise UnusableError(f"{ABOUT} is missing or damaged") from None
    if digest(record) != sha256 or record["t"] != step_of(path):
        raise UnusableError(f"{ABOUT} was changed after it was written")
    trials = tuple((arm, seed) for arm, seed in record["trials"])
    values = (record[name] for name in ("t", "identity", "state", "shards"))
    return Checkpoint(path, trials, *values)


def _write_shards(folder: Path, replica: int, arrays: Arrays) -> dict[str, str]:
    """Write the arrays of a replica in files of about SHARD_BYTES; return the SHA-256 of each."""
    import safetensors.numpy

    parts: dict[int, dict[str, np.ndarray]] = {}
    n_bytes = 0
    for name in sorted(arrays):
        part = parts.setdefault(n_bytes // SHARD_BYTES, {})
        part[name] = np.asarray(arrays[name], order="C")
        n_bytes += arrays[name].nbytes
    shards: dict[str, str] = {}
    for k, part in parts.items():
        file = f"replica-{replica}-{k}.safetensors"
        content = safetensors.numpy.save(part)
        write_bytes(folder / file, content)
        shards[file] = hashlib.sha256(content).hexdigest()
    return shards
