"""Workers are guarded by the process that was started: what they leave is ended with them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..tools import eventually

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


def is_running(name: str, folder: Path) -> bool:
    """Return whether a process `name` runs in `folder`."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "comm").read_text().strip() == name and (path / "cwd").resolve() == folder:
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("delay", [None, 0.002])
def test_orphans_of_a_killed_worker_end_also_when_its_guard_is_asked_to_stop(tmp_path, delay):
    guard = subprocess.Popen([sys.executable, "-c", GUARDED], cwd=tmp_path)
    eventually(lambda: (tmp_path / "ready").exists() and is_running("sleep", tmp_path))
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    if delay is not None:
        time.sleep(delay)
        guard.send_signal(signal.SIGTERM)
    assert guard.wait(30) != 0
    eventually(lambda: not is_running("sleep", tmp_path))
