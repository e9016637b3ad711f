"""What an own module has started ends with its worker, however that ends."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import paribus
from paribus.study import Study

from ..conftest import Maker
from ..tools import eventually, processes, refused

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


@pytest.fixture
def sleepers(tmp_path):
    """The processes that the module of this test has started, and that live."""
    seconds = f"{86400 + os.getpid()}.{next(NUMBERS)}"
    (tmp_path / "own.py").write_text(SPAWNS.replace("SECONDS", seconds))
    yield (find := lambda: processes(Path("/"), "sleep " + seconds))
    for pid in find():
        os.kill(pid, signal.SIGKILL)


def study_of(small_study: Maker) -> Study:
    own = {"tasks.names": [], "model.modules.final_norm": "own.py:Spawns"}
    own |= {"decision.unreachable": "accept"}
    return small_study(own, arms={"baseline": {}}, seeds=[1])


RUN = """
import json, sys
from pathlib import Path
import paribus
from paribus.study import parse_study
folder = Path(sys.argv[1])
paribus.run(parse_study(json.load(sys.stdin), folder=folder), folder / "r", workers=1)
"""


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_outlives_a_dry_run(fails, small_study, sleepers, tmp_path):
    if fails:
        (tmp_path / "fail").touch()
        with refused("value", match="was told"):
            paribus.register(study_of(small_study), tmp_path / "r")
    else:
        paribus.register(study_of(small_study), tmp_path / "r")
    assert not sleepers()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_nothing_outlives_a_run_that_is_ended(number, small_study, sleepers, tmp_path):
    study = study_of(small_study)
    (tmp_path / "wait").touch()
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    run.stdin.write(json.dumps(study.model_dump(mode="json")))
    run.stdin.close()
    eventually((tmp_path / "waits").exists)
    assert len(sleepers()) >= 4
    (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
    assert run.wait(60)
    eventually(lambda: not sleepers(), 10)
