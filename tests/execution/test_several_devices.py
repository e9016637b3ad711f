"""Trials over two processes, the whole way: records, a rank that dies, and resuming."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.engine.execution.trial.stacks import step_of
from paribus.engine.model import build_model
from paribus.engine.setting import rows_of
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
    "decision": {"unreachable": "accept"},  # one arm, and nothing to compare it with
}


def study(**changes: Any) -> Study:
    return load_study(TABLE, {key.replace("__", "."): value for key, value in changes.items()})


def test_the_ladder_is_what_its_names_say():
    sizes = [125_226_240, 355_871_744, 1_315_723_264]
    for name, parameters in zip(LADDER, sizes, strict=True):
        planned = load_study(name)
        setting = planned.setting("baseline")
        model = build_model(setting, 50_257, device="meta")
        assert sum(x.numel() for x in model.parameters()) == parameters
        assert len(planned.trials) == 6 * 5
        wanted = 50e9 if name.endswith("1b") else 20 * parameters
        assert abs(setting.tokens - wanted) < setting.tokens_per_step
        assert rows_of(setting, planned.resources.devices_per_trial or 1) % 8 == 0


RANKS = "--multiprocessing-fork"  # a rank is a spawned process
RUN = """
import sys, paribus
from paribus.errors import ParibusError
from tests.execution.test_several_devices import study
try:
    paribus.run(study(resources__devices_per_trial=int(sys.argv[2])), sys.argv[1], workers=1,
                device="cpu", checkpoint_seconds=0.2, progress=False)
except ParibusError as error:
    print(error)
    sys.exit(1)
"""


def begin(results: Path, ranks: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(results), str(ranks)]
    return subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def newest_after(step: int, results: Path, run: subprocess.Popen[str]) -> int:
    """Wait for a checkpoint after `step`; return the step of the newest one."""
    newest = 0
    while newest <= step:
        assert run.poll() is None
        time.sleep(0.05)
        newest = max(map(step_of, results.glob("checkpoints/*/step-*")), default=0)
    return newest


def helper_below(parent: int) -> int:
    """Return the process of a rank that a worker of this parent started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"PARIBUS_TEST={parent}".encode() in environment and RANKS.encode() in command:
            return int(entry.name)
    raise AssertionError("there is no other rank")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_trial_outlives_a_killed_rank(tmp_path, monkeypatch):
    monkeypatch.setenv("PARIBUS_TEST", str(os.getpid()))
    results = tmp_path / "r"
    run = begin(results, 2)
    step = newest_after(0, results, run)
    os.kill(helper_below(os.getpid()), signal.SIGKILL)
    newest_after(step, results, run)
    run.send_signal(signal.SIGINT)
    _, warnings = run.communicate(timeout=300)
    assert re.search(r"on baseline/seed-1.*rank [01] .*signal 9.*restarting the task", warnings)
    assert begin(results, 1).wait(timeout=600) == 0
    loaded = paribus.load_results(results)
    (trial,) = loaded.finished
    environment = trial.read_json("environment.json")
    assert "ranks" not in environment
    assert [record["ranks"] for record in environment["resumed_from"]] == [2]
    assert not (results / "checkpoints").exists()
    whole = paribus.run(study(), tmp_path / "whole", workers=1, device="cpu", progress=False)
    ours, theirs = (record.finished[0] for record in (loaded, whole))
    losses = [record.read_json("evaluation.json")["validation_loss"] for record in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    for name in ("batch_digest", "data", "consumed"):
        assert ours.read_json("trial.json")[name] == theirs.read_json("trial.json")[name]
    assert ours.read_json("initial.json") == theirs.read_json("initial.json")
    assert not paribus.verify(results).findings
