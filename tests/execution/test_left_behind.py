"""What an own module has started ends with its worker, however that ends."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

import paribus
from paribus.engine.execution.backends import find_backend
from paribus.engine.execution.backends.local import PipedProcess
from paribus.engine.execution.workers import processes
from paribus.engine.execution.workers.messages import (
    Check,
    Findings,
    Hello,
    Refused,
    decode,
    encode,
)
from paribus.engine.execution.workers.processes import Fork
from paribus.study import Study

from ..process_life import running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can do it")

# A child, one in a session of its own, and two whose parent has left.
SPAWNS = """
import subprocess, time
from pathlib import Path
from torch import nn

class Spawns(nn.Identity):
    def __init__(self, model):
        super().__init__()
        command = ["sleep", "SECONDS"]
        subprocess.Popen(command)
        subprocess.Popen(command, start_new_session=True)
        subprocess.run(["sh", "-c", "sleep SECONDS & setsid sleep SECONDS &"])
    def forward(self, x):
        here = Path(__file__)
        if here.with_name("fail").exists():
            raise ValueError("as it was told to")
        while here.with_name("wait").exists():
            here.with_name("waits").touch()
            time.sleep(0.01)
        return x
"""
NUMBERS = itertools.count(1)


def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Callable[[], set[int]]]:
    """The processes that the module of this test has started, and that live."""
    seconds = f"{86400 + os.getpid()}.{next(NUMBERS)}"
    (tmp_path / "own.py").write_text(SPAWNS.replace("SECONDS", seconds))
    yield lambda: running("sleep", seconds)
    for pid in running("sleep", seconds):
        os.kill(pid, signal.SIGKILL)


def study_of(small_study: Callable[..., Study]) -> Study:
    own = {"tasks.names": [], "model.modules.final_norm": "own.py:Spawns"}
    own |= {"decision.unreachable": "accept"}
    return small_study(own, arms={"baseline": {}}, seeds=[1])


class Asked:
    """A worker that was asked to check the arm, and what it said."""

    def __init__(self, study: Study, results: Path) -> None:
        said = SimpleQueue[str | None]()
        worker = find_backend("local").start(said.put)
        assert isinstance(worker, PipedProcess) and isinstance(worker.process, Fork)
        dump, home = study.model_dump(mode="json"), str(study.folder)
        hello = Hello(dump, home, str(results), "cpu", 0, 60, eager=False)
        worker.send(encode(hello))
        worker.send(encode(Check("baseline", stack=1)))
        self.worker, self.process, self.said = worker, worker.process, said

    def hear(self) -> object:
        line = self.said.get(timeout=120)
        return line and decode(line)


@pytest.fixture
def starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers are forks of a template; or, as where there is a GPU, new interpreters."""
    there: dict[bool, tuple[processes.Key, processes.Template]] = {}
    if request.param == "anew":
        monkeypatch.setattr(processes, "can_fork", lambda: False)
        monkeypatch.setattr(processes, "_THERE", there)
    yield
    for _, template in there.values():
        template.kill()


@pytest.mark.parametrize(
    ("how", "starts"),
    [("answer", "forked"), ("error", "forked"), ("killed", "forked"), ("killed", "anew")],
    indirect=["starts"],
)
def test_nothing_outlives_a_worker(
    how: str,
    starts: None,
    small_study: Callable[..., Study],
    sleepers: Callable[[], set[int]],
    tmp_path: Path,
) -> None:
    if how != "answer":
        (tmp_path / {"error": "fail", "killed": "wait"}[how]).touch()
    asked = Asked(study_of(small_study), tmp_path / "r")
    if how == "killed":
        eventually((tmp_path / "waits").exists)
        assert len(sleepers()) >= 4
        os.kill(asked.process.forked.result(), signal.SIGKILL)
    else:
        expected = {"answer": Findings, "error": Refused}[how]
        while not isinstance(said := asked.hear(), expected):
            assert said is not None
        asked.worker.stop()
    asked.worker.close()
    assert not sleepers()


RUN = """
import json, sys
from pathlib import Path
import paribus
from paribus.study import parse_study
folder = Path(sys.argv[1])
paribus.run(parse_study(json.load(sys.stdin), folder=folder), folder / "r", workers=1)
"""


@pytest.mark.slow
def test_nothing_outlives_a_whole_run(
    small_study: Callable[..., Study], sleepers: Callable[[], set[int]], tmp_path: Path
) -> None:
    paribus.run(study_of(small_study), tmp_path / "r", workers=1)
    assert not sleepers()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_nothing_outlives_a_run_that_is_ended(
    number: signal.Signals,
    small_study: Callable[..., Study],
    sleepers: Callable[[], set[int]],
    tmp_path: Path,
) -> None:
    """SIGINT is sent to its whole group, as a terminal does."""
    study = study_of(small_study)
    (tmp_path / "wait").touch()
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert run.stdin is not None
    run.stdin.write(json.dumps(study.model_dump(mode="json")))
    run.stdin.close()
    eventually((tmp_path / "waits").exists)
    assert len(sleepers()) >= 4
    (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
    assert run.wait(60)
    eventually(lambda: not sleepers(), 10)


def test_elsewhere_a_worker_that_leaves_ends_its_group() -> None:
    seconds = f"{86400 + os.getpid()}.{next(NUMBERS)}"
    code = (
        "import subprocess, sys\n"
        "sys.platform = 'darwin'\n"
        "from paribus.engine.execution.workers.lifetime import adopt, leave\n"
        "adopt()\n"
        f"subprocess.Popen(['sleep', '{seconds}'], stdout=subprocess.DEVNULL)\n"
        "leave(7)\n"
    )
    left = subprocess.run([sys.executable, "-c", code], check=False)
    assert left.returncode == 7
    eventually(lambda: not running("sleep", seconds), 10)
