"""A fault of the disk at any write of a run: one clear line, and a folder to go on from.

Every eighth write of a stack of two fails, in this process.
"""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from paribus import files
from paribus.engine.execution.trial.trial import Stack
from paribus.results import ResultsFolder
from paribus.results.trial_folder import CANONICAL
from paribus.runs.processes import Leaving

from ..tools import refused
from .test_kills import litter


class Faulty:
    """Counts writes, and lets number k fail after half of its bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.k, self.code, self.count = 0, 0, 0
        self._real = files._store
        monkeypatch.setattr(files, "_store", self._store)

    def at(self, k: int, code: int) -> None:
        self.k, self.code, self.count = k, code, 0

    def _store(self, file: Any, content: bytes) -> None:
        self.count += 1
        if self.count != self.k:
            self._real(file, content)
            return
        file.write(content[: len(content) // 2])
        raise OSError(self.code, os.strerror(self.code))


def test_writes_of_a_stack(small_study, small_dataset, tmp_path, monkeypatch):
    short = {"smoothing_steps": 1, "median_steps": 1, "spike_steps": 1}
    study = small_study({"tasks.names": [], "training.iterations": 3}, stability=short)
    trials = (("layernorm", 1), ("layernorm", 2))

    def train(path: Path) -> dict[str, bytes]:
        folder = ResultsFolder(path)
        folder.create(study)
        cpu = torch.device("cpu")
        stack = Stack(study, trials, folder, small_dataset, cpu, checkpoint_seconds=0)
        stack.run(lambda *_: None, Leaving())
        assert not litter(path)[1:]  # the folder of checkpoints is the run's to remove
        return {
            f"{one.label}/{name}": (one.path / name).read_bytes()
            for one in stack.folders
            for name in (*CANONICAL, "manifest.json")
        }

    faulty = Faulty(monkeypatch)
    whole = train(tmp_path / "whole")
    n_writes = faulty.count
    assert n_writes > 30
    for k in range(1, n_writes + 1, 8):
        path, code = tmp_path / f"r-{k}", (errno.ENOSPC, errno.EIO)[k // 8 % 2]
        faulty.at(k, code)
        with refused("system", match=os.strerror(code)):
            train(path)
        assert not [name for name in litter(path) if name.endswith(".part")]
        faulty.at(0, code)
        assert train(path) == whole, k
