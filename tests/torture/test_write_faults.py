"""A fault of the disk at any write of a run: one clear line, and a folder to go on from.

In the ordinary suite every third write of a stack of two, in this process;
`pytest -m torture tests/torture/test_write_faults.py` meets every write of a whole run, report
included, with each fault. PARIBUS_FIRST_FAULT and PARIBUS_FAULTS say from which case on, and how
many: a case is a function of its number.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paribus import files
from paribus.engine.data import Dataset
from paribus.engine.execution.trial.trial import StackTask, run_stack
from paribus.engine.execution.workers.lifetime import Leaving
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.trial_folder import CANONICAL
from paribus.study import Study

from .fuzzing import told
from .harness import Undisturbed, litter, undisturbed, written

KINDS = ("ENOSPC", "EIO", "torn")
# How many cases the marked suite tries, from which on; by default every one.
FAULTS = int(os.environ.get("PARIBUS_FAULTS", "1000000"))
FIRST = int(os.environ.get("PARIBUS_FIRST_FAULT", "0"))


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
    for k in range(1, n_writes + 1, 5):
        path, code = tmp_path / f"r-{k}", (errno.ENOSPC, errno.EIO)[k % 2]
        faulty.at(k, code)
        with pytest.raises(ParibusError, match=os.strerror(code)) as caught:
            train(path)
        assert "\n" not in str(caught.value)
        assert not [name for name in litter(path) if name.endswith(".part")]
        faulty.at(0, code)
        assert train(path) == whole, k


def meet(reference: Undisturbed, at: Path, kind: str, place: str, verb: str) -> bool:
    """Whether `verb` writes at `place`; it meets a fault, is called again, and must be whole."""
    folder, log = reference.copy_for(verb, at), at.with_name(f"{at.name}.log")
    code, said = reference.finish(folder, verb, "--fault", kind, place, str(log))
    is_again = kind == "torn" and "died with signal 9" in said  # a worker, and another went on
    if code == 0 and not is_again:
        return False
    if kind == "torn":
        # Either the command itself was killed, or a worker, whose death it tells.
        assert code == -9 or is_again, (code, said)
    else:
        (line,) = (line for line in said.splitlines() if line.startswith("paribus: "))
        assert code == 2 and os.strerror(getattr(errno, kind)) in line, said
    assert "Traceback" not in said
    code, said = reference.finish(folder, verb)
    assert code == 0, said
    assert not litter(folder), litter(folder)
    ours, theirs = written(folder, verb), reference.writes[verb]
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    return True


def places(reference: Undisturbed, verb: str, at: Path) -> list[str]:
    """Every write of `verb`, as `commands.py` names them, in their order.

    Of files that are written by the clock, which `status --follow` reads, the first is.
    """
    folder, log = reference.copy_for(verb, at), at.with_name(f"{at.name}.log")
    code, said = reference.finish(folder, verb, "--fault", "EIO", "nothing#1", str(log))
    assert code == 0, said
    seen: Counter[str] = Counter()
    found = []
    for path in log.read_text().splitlines():
        seen[path] += 1
        if path != "r/live.json" or seen[path] == 1:
            found.append(f"{path}#{seen[path]}")
    return found


@pytest.mark.torture
@pytest.mark.skipif(sys.platform != "linux", reason="kills by signal")
def test_a_write_of_a_run_that_is_torn(tmp_path: Path) -> None:
    """A checkpoint, by a worker that is killed in the middle of it; in fresh processes."""
    reference = undisturbed(tmp_path / "whole", ["train"])
    assert meet(reference, tmp_path / "w", "torn", "r/checkpoints/*/step-3/*#2", "train")


def in_turn(of: dict[str, list[str]]) -> list[tuple[str, str, str]]:
    """(verb, place, kind): kinds and places mixed, each place once before any comes again."""
    writes = [(verb, place) for verb, found in of.items() for place in sorted(found)]
    random.Random(1).shuffle(writes)
    return [
        (verb, place, KINDS[(i + turn) % len(KINDS)])
        for turn in range(len(KINDS))
        for i, (verb, place) in enumerate(writes)
    ]


@pytest.mark.torture
@pytest.mark.skipif(sys.platform != "linux", reason="kills by signal")
def test_every_write_of_a_run(tmp_path: Path) -> None:
    """A run is training, then its report: where training is whole, so are the same bytes of both.

    The counts so far are printed, and what failed; the next cases go on.
    """
    reference = undisturbed(tmp_path / "whole", ["train", "report"], fork=True, brief=True)
    of = {verb: places(reference, verb, tmp_path / verb) for verb in ("train", "report")}
    assert set(places(reference, "run", tmp_path / "run")) <= {*of["train"], *of["report"]}
    cases = in_turn(of)
    print(len(cases), {verb: len(found) for verb, found in of.items()}, reference.seconds)
    counts: Counter[str] = Counter()
    failed = []
    for number in range(FIRST, min(FIRST + FAULTS, len(cases))):
        verb, place, kind = cases[number]
        at = tmp_path / f"{number}"
        try:
            # What several processes or threads write comes in another order, or not at all.
            is_met = meet(reference, at, kind, place, verb)
            counts[f"{verb} {kind}" if is_met else f"{verb} not reached"] += 1
            shutil.rmtree(at)
        except AssertionError as error:
            failed.append(f"{number} {cases[number]}: {error}")
            print(failed[-1])
        print(number + 1, dict(sorted(counts.items())), len(failed), "failed", flush=True)
    told("write faults", counts)
    assert not failed, "\n".join(failed)
