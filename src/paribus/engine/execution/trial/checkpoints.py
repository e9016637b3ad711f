"""Checkpoints of stacks that are in training: complete or absent, the two newest of each kept.

checkpoints/<id of the stack>/step-<t>.<worker>/
    replica-<r>-<k>.safetensors   named arrays of one replica, in files of about a gigabyte
    about.json                    written last: whose state it is, and digests of all of it

A stack is the trials that are trained side by side; its checkpoint holds all of their states at one
step, so that whatever happens they go on together. What a state's arrays are called is the
business of training; here every name, type, shape and value is kept and checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, ValidationError

from paribus.digests import changes, digest
from paribus.errors import ParibusError
from paribus.files import remove_folder, whole_folder, write_bytes
from paribus.results.formats import write_plain_json
from paribus.results.records import Record
from paribus.schema import KEY, SCHEMA
from paribus.study.trainer import Trial
from paribus.untrusted_io import WEIGHTS_BYTES, open_regular, read_json

FOLDER, ABOUT = "checkpoints", "about.json"
KEPT = 2
SHARD_BYTES = 2**30

Arrays = Mapping[str, np.ndarray]


class UnusableError(ParibusError):
    """Why a checkpoint cannot be gone on from."""


class About(Record):
    """about.json."""

    model_config = ConfigDict(extra="ignore")
    trials: list[tuple[str, int]]
    t: int
    identity: dict[str, Any]
    about: dict[str, Any]
    shards: list[dict[str, str]]  # by replica: {file: its SHA-256}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, as it says of itself.

    Attributes:
        path: its folder.
        trials: of the stack, in the order of its replicas.
        t: steps done.
        identity: what has to be the same for a run to go on from here: study, software ...
        about: anything else, such as `seconds`; and by replica what is no array.
        files: by replica, {file: its SHA-256}.
    """

    path: Path
    trials: tuple[Trial, ...]
    t: int
    identity: dict[str, Any]
    about: dict[str, Any]
    files: list[dict[str, str]]

    def require(self, identity: Mapping[str, Any]) -> None:
        """Raise UnusableError where it is not of this identity."""
        differing = changes(self.identity, dict(identity))
        if differing:
            key, (there, here) = next(iter(differing.items()))
            raise UnusableError(
                f"it is of another {key}: {_short(there)} there, {_short(here)} here"
            )

    def states(self) -> list[dict[str, np.ndarray]]:
        """Return the arrays of every replica. Raises UnusableError where one is not what was
        written.
        """
        return [
            {
                name: array
                for file, sha256 in shards.items()
                for name, array in _read_arrays(self.path / Path(file).name, sha256).items()
            }
            for shards in self.files
        ]


class StackCheckpoints:
    """Checkpoints of one stack. Each worker writes under its own name; any may be gone on from."""

    def __init__(self, results: Path, trials: Sequence[Trial], owner: str = "") -> None:
        self.trials, self._owner = tuple(trials), owner
        self.path = results / FOLDER / _id(self.trials)

    def write(
        self,
        t: int,
        states: Iterable[Arrays],
        *,
        identity: Mapping[str, Any],
        about: Mapping[str, Any],
    ) -> None:
        """One more, of step t, and away with those before the last; `states` by replica."""
        target = self.path / (f"step-{t}.{self._owner}" if self._owner else f"step-{t}")
        remove_folder(target)
        with whole_folder(target) as folder:
            record = {
                KEY: SCHEMA,
                "trials": [list(trial) for trial in self.trials],
                "t": t,
                "identity": dict(identity),
                "about": dict(about),
                "shards": [_write_shards(folder, r, arrays) for r, arrays in enumerate(states)],
            }
            write_plain_json(folder / ABOUT, record | {"sha256": digest(record)})
        for old in self._newest_first()[KEPT:]:
            remove_folder(old)

    def at(self, t: int) -> Checkpoint:
        """Return the checkpoint of step t. Raises UnusableError if it cannot be read."""
        paths = [path for path in self._newest_first() if _step(path) == t]
        if not paths:
            raise UnusableError(f"there is no checkpoint of step {t}")
        return _read(paths[0])

    def newest_first(self) -> Iterator[Checkpoint | UnusableError]:
        """Each that is there, or why it cannot be read."""
        for path in self._newest_first():
            try:
                checkpoint = _read(path)
                if checkpoint.trials != self.trials:
                    raise UnusableError("it is of other trials")
                yield checkpoint
            except UnusableError as error:
                yield error

    def remove(self) -> None:
        """Remove all checkpoints of the stack."""
        remove_folder(self.path)

    def remove_after(self, t: int) -> None:
        """Remove those of later steps than t."""
        for path in self._newest_first():
            if _step(path) > t:
                remove_folder(path)

    def _newest_first(self) -> list[Path]:
        return sorted(self.path.glob("step-*"), key=_step, reverse=True)


def begun_stacks(results: Path) -> dict[tuple[Trial, ...], int]:
    """{trials of a stack in training: steps done}, from the newest that says so."""
    begun: dict[tuple[Trial, ...], int] = {}
    for path in sorted((results / FOLDER).glob("*/step-*"), key=_step):
        try:
            checkpoint = _read(path)
        except UnusableError:
            continue
        if path.parent.name == _id(checkpoint.trials):
            begun[checkpoint.trials] = checkpoint.t
    return begun


def keep_stacks(results: Path, stacks: Iterable[Sequence[Trial]]) -> None:
    """Remove all but the checkpoints of these stacks; the folder too, where none are left."""
    kept = {_id(trials) for trials in stacks}
    folder = results / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        if path.name not in kept:
            remove_folder(path)
    if not any(folder.iterdir()):
        remove_folder(folder)


def _id(trials: Sequence[Trial]) -> str:
    return digest([list(trial) for trial in trials])[:16]


def _step(path: Path) -> int:
    number = path.name.removeprefix("step-").partition(".")[0]
    return int(number) if number.isdecimal() else -1


def _read(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises UnusableError where its about.json is not what was written."""
    try:
        record = read_json(path / ABOUT, missing="it is missing")
        written = record.pop("sha256")
        found = About.model_validate_json(json.dumps(record))
    except (ParibusError, ValidationError, KeyError, TypeError, AttributeError):
        raise UnusableError("about.json is missing or damaged") from None
    if digest(record) != written or found.t != _step(path):
        raise UnusableError("about.json was changed after it was written")
    return Checkpoint(path, tuple(found.trials), found.t, found.identity, found.about, found.shards)


def _write_shards(folder: Path, replica: int, arrays: Arrays) -> dict[str, str]:
    """Write the arrays of one replica; returns {file: its SHA-256}."""
    import safetensors.numpy  # not above: what only asks how far a stack is needs no engine

    shards: dict[str, str] = {}
    for k, names in enumerate(_parts(arrays)):
        file = f"replica-{replica}-{k}.safetensors"
        content = safetensors.numpy.save({n: np.asarray(arrays[n], order="C") for n in names})
        write_bytes(folder / file, content)
        shards[file] = hashlib.sha256(content).hexdigest()
    return shards


def _parts(arrays: Arrays) -> Iterator[list[str]]:
    """Return the names, in parts of at most SHARD_BYTES each or of one array."""
    names, size = [], 0
    for name in sorted(arrays):
        if names and size + arrays[name].nbytes > SHARD_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += arrays[name].nbytes
    yield names


def _read_arrays(path: Path, sha256: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file. Raises UnusableError where it is not what was written."""
    import safetensors.numpy

    try:
        with open_regular(path, WEIGHTS_BYTES) as file:
            content = file.read()
    except (ParibusError, OSError):
        raise UnusableError(f"{path.name} is missing or damaged") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UnusableError(f"{path.name} is not what was written")
    return safetensors.numpy.load(content)


def _short(value: Any) -> str:
    return str(value)[:20]
