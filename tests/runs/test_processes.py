"""Workers are guarded by the process that was started: what they leave is ended with them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ..tools import eventually, processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans only on Linux")

GUARDED = """
import os, subprocess, sys, time
from paribus.runs import processes
if worker := os.fork():
    open("worker", "w").write(str(worker))
    processes.guard(worker, 0)
else:
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    open("ready", "w").write("")
    time.sleep(300)
"""


@pytest.mark.parametrize("delay", [None, 0.002])
def test_orphans_of_a_killed_worker_end_also_when_its_guard_is_asked_to_stop(tmp_path, delay):
    guard = subprocess.Popen([sys.executable, "-c", GUARDED], cwd=tmp_path)
    eventually(lambda: (tmp_path / "ready").exists() and processes(tmp_path, "sleep 300"))
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    if delay is not None:
        time.sleep(delay)
        guard.send_signal(signal.SIGTERM)
    assert guard.wait(30) != 0
    eventually(lambda: not processes(tmp_path, "sleep 300"))
