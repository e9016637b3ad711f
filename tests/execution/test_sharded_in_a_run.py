"""Trials over two processes, the whole way: torchrun, records, a rank that dies, and going on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.engine.execution.workers.lifetime import Leaving
from paribus.engine.execution.workers.messages import Across, Failed, Hello, Refused, decode
from paribus.engine.execution.workers.ranks import RANKS_PER_CORE, _failure, relay, torchrun
from paribus.errors import ParibusError
from paribus.study import Study, load_study

LADDER = ("embedding-norm-124m", "embedding-norm-350m", "embedding-norm-1b")
TABLE: dict[str, Any] = {
    "name": "over-two",
    "seeds": [1],
    "resources": {"devices_per_trial": 2},
    "data": {"corpus": "pydoc", "tokenizer": "byte", "seq_len": 32, "validation_tokens": 3000},
    "model": {"n_layer": 2, "n_head": 2, "d_model": 16},
    "training": {"iterations": 400, "batch_size": 8, "micro_batch": 2},
    "tasks": {"items": 4},
    "arms": {"baseline": {}},
}


def study(**changes: Any) -> Study:
    return load_study(TABLE, {key.replace("__", "."): value for key, value in changes.items()})


def test_the_ladder_is_what_its_names_say() -> None:
    from paribus.engine.machine.on_paper import plan_on_paper

    sizes = [125_226_240, 355_871_744, 1_315_723_264]
    for name, parameters in zip(LADDER, sizes, strict=True):
        plan = plan_on_paper(load_study(name), "h100", count=64)
        base = plan.arms["baseline"]
        assert base.parameters == parameters and plan.trials == 6 * 5 and plan.fits
        wanted = 50e9 if name.endswith("1b") else 20 * parameters
        steps = base.tokens // base.iterations
        assert abs(base.tokens - wanted) < steps


def test_what_torchrun_says_of_a_dead_rank_is_one_line(tmp_path: Path) -> None:
    stderr = (
        "Root Cause (first observed failure):\n[0]:\n  time : x\n  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : -9 (pid: 17)\n"
    )
    said = _failure(tmp_path, stderr, 4)
    assert isinstance(said, str) and "\n" not in said
    assert said.startswith("rank 3 of 4 died with signal 9")
    # Rank 0 lost rank 1, and torchrun, which knows seconds, takes it for the first.
    both = (
        "Failures:\n[1]:\n  time : x\n  rank      : 1 (local_rank: 1)\n  exitcode  : {} (pid: 18)\n"
    )
    both += stderr.replace("rank      : 3", "rank      : 0").replace("-9", "1")
    (tmp_path / "error-0").write_text('{"refused": false, "words": "closed by peer", "trace": ""}')
    said = _failure(tmp_path, both.format("-9"), 2)
    assert isinstance(said, str) and said.startswith("rank 1 of 2 died with signal 9")
    for code in ("1", "-15"):  # what torchrun ends is no cause
        told = _failure(tmp_path, both.format(code), 2)
        assert isinstance(told, Failed) and told.words == "rank 0 of 2: closed by peer"
    (tmp_path / "error-1").write_text('{"refused": true, "words": "no room", "trace": ""}')
    told = _failure(tmp_path, stderr, 4)
    assert isinstance(told, Refused) and told.words == "no room"
    assert (
        "--max-restarts" in torchrun(2)
        and torchrun(2)[torchrun(2).index("--max-restarts") + 1] == "0"
    )


@pytest.mark.parametrize("nodes", [1, 2])
def test_more_ranks_than_a_cpu_is_good_for_are_refused_before_any_begins(
    nodes: int, tmp_path: Path
) -> None:
    """By the worker that would start them, on this machine or within a job."""
    most = nodes * RANKS_PER_CORE * (os.cpu_count() or 1)
    across = Across(nodes, ("false",), str(tmp_path)) if nodes > 1 else None
    told: list[str] = []
    for size in (most + nodes, 1024):
        dump = study(resources__devices_per_trial=size).model_dump(mode="json")
        hello = Hello(dump, ".", str(tmp_path / "r"), "cpu", 0, 0, False, None, across)
        assert relay(hello, told.append, Leaving()) == 2
    for size, line in zip((most // nodes + 1, 1024 // nodes), told, strict=True):
        said = decode(line)
        assert isinstance(said, Refused) and "\n" not in said.words
        assert f"takes {size} processes" in said.words and f"at most {most}" in said.words
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_stack_over_devices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParibusError, match="--stack 2 trains trials side by side"):
        paribus.run(study(), tmp_path / "r", stack=2, device="cpu", progress=False)


FULL = """
import os
from pathlib import Path
import torch
from torch import nn

class Full(nn.Module):
    def __init__(self, model):
        super().__init__()
    def forward(self, x):
        if os.environ.get("RANK") == "1" and Path(FLAG).exists():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return x * 1.0
"""


@pytest.mark.slow
def test_a_rank_without_memory_is_one_line_and_the_trial_goes_on(tmp_path: Path) -> None:
    """It says so itself, in the middle of training; what PyTorch raises is raised by a module."""
    flag, results = tmp_path / "full", tmp_path / "r"
    (tmp_path / "own.py").write_text(FULL.replace("FLAG", repr(str(flag))))
    own = study(model__modules__block_norm=f"{tmp_path}/own.py:Full")
    about: dict[str, Any] = {"workers": 1, "device": "cpu", "progress": False}

    def fill() -> None:
        while not _steps(results):
            time.sleep(0.05)
        flag.touch()

    with ThreadPoolExecutor() as threads:
        threads.submit(fill)
        with pytest.raises(ParibusError, match="rank 1 of 2") as told:
            paribus.run(own, results, checkpoint_seconds=0.2, **about)
    said = str(told.value)
    assert "out of memory (CUDA out of memory" in said and "--set resources." in said
    assert "\n" not in said and "--stack" not in said
    assert _steps(results)
    flag.unlink()
    more = study(
        model__modules__block_norm=f"{tmp_path}/own.py:Full", resources__devices_per_trial=4
    )
    (trial,) = paribus.run(more, results, **about).finished  # as the line advises
    environment = trial.read_json("environment.json")
    assert environment["ranks"] == 4
    assert [one["ranks"] for one in environment["resumed_from"]] == [2]


RUN = """
import sys, paribus
from paribus.engine.execution.backends import find_backend
from paribus.errors import ParibusError
from tests.execution.test_sharded_in_a_run import study
try:
    paribus.run(study(resources__devices_per_trial=int(sys.argv[2])), sys.argv[1], workers=1,
                device="cpu", checkpoint_seconds=0.2, progress=False,
                backend=find_backend("local", {"retries": int(sys.argv[3])}))
except ParibusError as error:
    print(error)
    sys.exit(1)
"""


def begin(results: Path, ranks: int, retries: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(results), str(ranks), str(retries)]
    return subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_rank(results: Path, run: subprocess.Popen[str], at: int = 0) -> int:
    """Kill rank 1 once there is a checkpoint after step `at`; returns the newest one's step."""
    while not (steps := [t for t in _steps(results) if t > at]):
        assert run.poll() is None
        time.sleep(0.05)
    os.kill(rank_below(os.getpid(), 1), signal.SIGKILL)
    return max(steps)


def _steps(results: Path) -> list[int]:
    return [int(path.name[5:]) for path in results.glob("checkpoints/*/step-*")]


def rank_below(parent: int, rank: int) -> int:
    """Return the process of a rank that this parent's torchrun started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        mine = f"PARIBUS_TEST={parent}".encode() in environment
        if mine and f"RANK={rank}".encode() in environment and b"-u" in command:
            return int(entry.name)
    raise AssertionError(f"there is no rank {rank}")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_rank_ends_the_trial_in_one_line_and_it_goes_on_with_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARIBUS_TEST", str(os.getpid()))
    results = tmp_path / "r"
    run = begin(results, 2)
    kill_rank(results, run)
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 1 and len(said.splitlines()) == 1
    assert "rank 1 of 2 died with signal 9" in said and "run again to continue" in said
    assert "on baseline/seed-1" in said
    assert begin(results, 1).wait(timeout=600) == 0
    loaded = paribus.load_results(results)
    (trial,) = loaded.finished
    environment = trial.read_json("environment.json")
    assert environment["ranks"] == 1
    assert [one["ranks"] for one in environment["resumed_from"]] == [2]
    assert not (results / "checkpoints").exists()
    whole = paribus.run(study(), tmp_path / "whole", workers=1, device="cpu", progress=False)
    ours, theirs = (
        one.finished[0].read_json("evaluation.json")["validation_loss"] for one in (loaded, whole)
    )
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert not paribus.verify(results).findings


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_trial_whose_rank_was_killed_goes_on_within_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as is registered, each time from its checkpoint; with the bits of a whole run."""
    monkeypatch.setenv("PARIBUS_TEST", str(os.getpid()))
    results = tmp_path / "r"
    run = begin(results, 2, retries=2)
    kill_rank(results, run, kill_rank(results, run))
    _, warned = run.communicate(timeout=600)
    assert run.returncode == 0, warned
    for count in ("1 of 2", "2 of 2"):
        assert f"begun again ({count})" in warned
    assert warned.count("rank 1 of 2 died with signal 9") == 2
    (trial,) = paribus.load_results(results).finished
    assert begin(tmp_path / "whole", 2).wait(timeout=600) == 0
    (whole,) = paribus.load_results(tmp_path / "whole").finished
    assert trial.read_json("evaluation.json") == whole.read_json("evaluation.json")
