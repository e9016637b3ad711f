"""One run at a time writes to a results folder."""

import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paribus.errors import ParibusError
from paribus.results.lock import NAME, hold, holder

from ..tools import refused


def left(folder: Path, **about: object) -> None:
    """Write the lock file that another process holds or has left."""
    there = {"host": platform.node(), "pid": os.getpid(), "started": "1"} | about
    (folder / NAME).write_text(json.dumps(there))


def test_one_run_holds_and_the_next_is_refused(tmp_path):
    with hold(tmp_path):
        about = holder(tmp_path)
        assert about and about["pid"] == os.getpid() and about["is_here"]
        with refused("in_use", match=str(os.getpid())):
            hold(tmp_path).__enter__()
        assert holder(tmp_path) == about
    assert holder(tmp_path) is None and not list(tmp_path.iterdir())


def test_of_many_at_once_one_takes_it(tmp_path):
    start, held, refused = threading.Barrier(8), list[object](), list[ParibusError]()

    def take() -> None:
        run = hold(tmp_path)
        start.wait()
        try:
            run.__enter__()
            held.append(run)
        except ParibusError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) == 1 and len(refused) == 7
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_killed_process_holds_nothing(tmp_path):
    code = "from pathlib import Path; from paribus.results.lock import hold; import os, signal\n"
    code += f"run = hold(Path({str(tmp_path)!r})); run.__enter__()\n"
    code += "os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code]).returncode != 0
    assert (tmp_path / NAME).exists() and holder(tmp_path) is None
    with hold(tmp_path):
        assert (holder(tmp_path) or {})["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs start times of processes")
def test_another_process_with_the_same_number_is_not_the_holder(tmp_path):
    left(tmp_path)
    assert holder(tmp_path) is None
    with hold(tmp_path):
        pass


@pytest.mark.parametrize("content", ['{"host": "elsewhere", "pid": 1}', "", "[]", "{"])
def test_a_holder_elsewhere_or_unknown_keeps_a_run_out(content, tmp_path):
    (tmp_path / NAME).write_text(content)
    with refused("in_use", match=NAME):
        hold(tmp_path).__enter__()
    assert (tmp_path / NAME).read_text() == content
    assert not (holder(tmp_path) or {})["is_here"]
