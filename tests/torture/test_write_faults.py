"""A fault of the disk at any write of a run: one clear line, and a folder to go on from.

In the ordinary suite every third write of a stack of two, in this process, and one of a whole run;
`pytest -m torture tests/torture/test_write_faults.py` meets every write of a whole run, report
included, with each fault.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paribus import files
from paribus.data import Dataset
from paribus.errors import ParibusError
from paribus.execution.leaving import Leaving
from paribus.execution.trial import StackTask, run_stack
from paribus.results import ResultsFolder
from paribus.results.trial_folder import CANONICAL
from paribus.study import Study

from .harness import ARGUMENTS, SIZES, Undisturbed, finish, litter, undisturbed, written

KINDS = ("ENOSPC", "EIO", "torn")
RUN = (*ARGUMENTS["run"], *SIZES["run"])
# How many of a run's writes the marked suite meets; by default every one.
FAULTS = int(os.environ.get("PARIBUS_FAULTS", "0"))


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


def test_writes_of_a_stack(
    small_study: Callable[..., Study],
    small_dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Initial values, checkpoints at every step, records, seals: two trials side by side."""
    short = {"smoothing_steps": 1, "median_steps": 1, "spike_steps": 1}
    study = small_study({"tasks.names": [], "training.iterations": 3}, stability=short)
    trials = (("layernorm", 1), ("layernorm", 2))

    def train(path: Path) -> dict[str, bytes]:
        folder = ResultsFolder(path)
        folder.create(study)
        task = StackTask(study, trials, folder, torch.device("cpu"), 0)
        quiet: dict[str, Any] = {"on_progress": lambda *_: None, "on_resume": lambda *_: None}
        assert run_stack(task, small_dataset, leaving=Leaving(), **quiet)
        assert not litter(path)[1:]  # the folder of checkpoints is the run's to remove
        return {
            f"{one.label}/{name}": (one.path / name).read_bytes()
            for one in task.folders
            for name in (*CANONICAL, "manifest.json")
        }

    faulty = Faulty(monkeypatch)
    whole = train(tmp_path / "whole")
    n_writes = faulty.count
    assert n_writes > 30
    for k in range(1, n_writes + 1, 3):
        path, code = tmp_path / f"r-{k}", (errno.ENOSPC, errno.EIO)[k % 2]
        faulty.at(k, code)
        with pytest.raises(ParibusError, match=os.strerror(code)) as caught:
            train(path)
        assert "\n" not in str(caught.value)
        assert not [name for name in litter(path) if name.endswith(".part")]
        faulty.at(0, code)
        assert train(path) == whole, k


def meet(reference: Undisturbed, at: Path, kind: str, k: int, verb: str = "run") -> bool:
    """Whether a run has a write number k; it meets a fault, is run again, and must be whole."""
    folder, command = reference.copy_for(verb, at), (*ARGUMENTS[verb], *SIZES[verb])
    counter = at.with_name(f"{at.name}.count")
    fault, fork = ("--fault", kind, str(k), str(counter)), reference.fork
    code, said = finish(folder, *fault, *command, fork=fork)
    if counter.stat().st_size < k:
        return False
    if kind == "torn":
        # Either the command itself was killed, or a worker, whose death it tells.
        assert code == -9 or (code == 2 and "died with signal 9" in said), (code, said)
    else:
        (line,) = (line for line in said.splitlines() if line.startswith("paribus: "))
        assert code == 2 and os.strerror(getattr(errno, kind)) in line, said
    assert "Traceback" not in said
    code, said = finish(folder, *command, fork=fork)
    assert code == 0, said
    assert not litter(folder), litter(folder)
    assert written(folder, verb) == reference.writes[verb]
    return True


@pytest.mark.torture
@pytest.mark.skipif(sys.platform != "linux", reason="kills by signal")
def test_a_write_of_a_run_that_is_torn(tmp_path: Path) -> None:
    """A checkpoint, by a worker that is killed in the middle of it."""
    reference = undisturbed(tmp_path / "whole", ["train"])
    assert meet(reference, tmp_path / "w", "torn", 20, "train")


@pytest.mark.torture
def test_every_write_of_a_run(tmp_path: Path) -> None:
    reference = undisturbed(tmp_path / "whole", ["run"], fork=True)
    counter = tmp_path / "count"
    folder = reference.copy_for("run", tmp_path / "counted")
    assert finish(folder, "--fault", "EIO", "1000000", str(counter), *RUN, fork=True)[0] == 0
    n_writes = counter.stat().st_size
    cases = [(kind, k) for kind in KINDS for k in range(1, n_writes + 1)]
    if FAULTS:
        cases = random.Random(1).sample(cases, FAULTS)
    met = dict.fromkeys(KINDS, 0)
    for kind, k in cases:
        # Writes of two processes may come in another order, and the last one not at all.
        met[kind] += meet(reference, tmp_path / f"{kind}-{k}", kind, k)
        print(f"{n_writes} writes; faults met: {met}", flush=True)
