"""Checkpoints of one model over many devices: each rank writes what it holds, while it trains on.

checkpoints/<id of the trial>/step-<t>/
    tensors/shard-*.safetensors   by `torch.distributed.checkpoint`, in safetensors: nothing pickled
    replica-0-0.safetensors       what was measured so far
    about.json                    written last, as of any checkpoint; digests of all files

Whoever goes on from it may have another number of ranks: every tensor is whole over its files.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from paribus.engine.execution.trial.checkpoints import (
    Checkpoint,
    StackCheckpoints,
    UnusableError,
    read_arrays,
)
from paribus.engine.training.ranks import Ranks
from paribus.errors import ParibusError
from paribus.files import whole_folder
from paribus.untrusted_io import WEIGHTS_BYTES, open_regular

TENSORS = "tensors"


class ShardedCheckpoints:
    """Those of one trial, over `ranks`; every method is called by all of them at the same step."""

    def __init__(self, checkpoints: StackCheckpoints, ranks: Ranks) -> None:
        self._all, self._ranks = checkpoints, ranks
        self._threads = ThreadPoolExecutor(1, "checkpoint")
        self._pending: _Pending | None = None

    @property
    def is_writing(self) -> bool:
        """Whether one is on its way."""
        return self._pending is not None

    def begin(
        self,
        t: int,
        tensors: Mapping[str, Any],
        history: Mapping[str, np.ndarray],
        *,
        identity: Mapping[str, Any],
        about: Mapping[str, Any],
    ) -> None:
        """Copy `tensors` and begin to write them; training may change them from here on.

        One that is still on its way is waited for.
        """
        self.settle(wait=True)
        folder = contextlib.ExitStack()
        where = ""
        if self._ranks.is_first:
            target = self._all.begin(t)
            where = str(folder.enter_context(whole_folder(target)))
            (Path(where) / TENSORS).mkdir()
        inner = Path(self._ranks.told(where)) / TENSORS
        if self._ranks.device.type == "cpu":  # what is on a GPU is copied on its way to the host
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        writer = HuggingFaceStorageWriter(str(inner), save_distributed=True)
        saved: Any = async_save(
            dict(tensors), storage_writer=writer, process_group=self._ranks.files
        )
        rank = self._ranks.rank
        hashes = self._threads.submit(_written, saved, inner, rank)
        self._pending = _Pending(t, Path(where), folder, hashes, history, identity, about)

    def settle(self, *, wait: bool = False) -> None:
        """Finish the one that is on its way, where every rank has written its part."""
        one = self._pending
        if one is None:
            return
        if wait:
            with contextlib.suppress(Exception):
                one.hashes.result()
        if not self._ranks.all_agree(one.hashes.done()):
            return
        self._pending = None
        failed = one.hashes.exception()
        if not self._ranks.all_agree(failed is None):
            self._drop(one, failed)
        files = self._ranks.of_all(one.hashes.result())
        if self._ranks.is_first:
            with one.folder:
                shards = {name: sha256 for part in files for name, sha256 in part.items()}
                self._all.seal(
                    one.path, one.t, one.history, shards, identity=one.identity, about=one.about
                )
            self._all.forget_old()
        self._ranks.wait()

    def _drop(self, one: _Pending, failed: BaseException | None) -> None:
        words = f"{type(failed).__name__}: {failed}" if failed else "on another rank"
        error = ParibusError(
            f"a checkpoint could not be written ({words.splitlines()[0][:200]}); free space there, "
            "and run again to continue"
        )
        one.folder.__exit__(type(error), error, None)
        raise error

    def load(self, found: Checkpoint, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Fill `tensors` from a checkpoint; returns what was measured. Raises UnusableError, on
        every rank, where a file is not what was written."""
        (files,) = found.files
        mine = sorted(files)[self._ranks.rank :: self._ranks.size]
        problem = ""
        for name in mine:
            try:
                if file_hash(found.path / name) != files[name]:
                    problem = f"{Path(name).name} is not what was written"
            except (ParibusError, OSError):
                problem = f"{Path(name).name} is missing or damaged"
        problem = next((one for one in self._ranks.of_all(problem) if one), "")
        if problem:
            raise UnusableError(problem)
        arrays: dict[str, np.ndarray] = {}
        for name, sha256 in files.items():
            if not name.startswith(f"{TENSORS}/"):
                arrays |= read_arrays(found.path / Path(name).name, sha256)
        try:
            reader = HuggingFaceStorageReader(str(found.path / TENSORS))
            load(dict(tensors), storage_reader=reader, process_group=self._ranks.files)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        problem = next((one for one in self._ranks.of_all(problem) if one), "")
        if problem:
            raise UnusableError(f"it cannot be read ({problem})")
        return arrays


class _Pending(NamedTuple):
    """A checkpoint on its way."""

    t: int
    path: Path
    folder: contextlib.ExitStack
    hashes: Future[dict[str, str]]
    history: Mapping[str, np.ndarray]
    identity: Mapping[str, Any]
    about: Mapping[str, Any]


def _written(saved: Any, folder: Path, rank: int) -> dict[str, str]:
    """Wait for this rank's files, and return their hashes: {name in the checkpoint: SHA-256}."""
    saved.result()
    mine = folder.glob(f"shard-{rank + 1:05d}-*.safetensors")
    return {f"{TENSORS}/{path.name}": file_hash(path) for path in mine}


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file. Raises ParibusError where it is no regular one."""
    with open_regular(path, WEIGHTS_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
