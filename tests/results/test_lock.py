"""One run at a time writes to a results folder."""

import os
import subprocess
import sys

from paribus.results import ResultsFolder
from paribus.results.store import LOCK, lock_holder

from ..tools import refused


def test_one_run_holds_the_folder_and_the_next_is_refused(tmp_path):
    folder = ResultsFolder(tmp_path / "new" / "r")
    with folder.lock():
        assert lock_holder(folder.path)[0] == os.getpid()
        with refused("in_use", match=f"process {os.getpid()} on"), folder.lock():
            pass
        assert (folder.path / LOCK).exists()
    assert lock_holder(folder.path) == (0, "") and not list(tmp_path.iterdir())


def test_a_killed_process_holds_nothing(tmp_path):
    code = "from paribus.results import ResultsFolder; from pathlib import Path; import os\n"
    code += f"with ResultsFolder(Path({str(tmp_path)!r})).lock(): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode != 0
    assert (tmp_path / LOCK).exists()
    with ResultsFolder(tmp_path).lock():
        assert lock_holder(tmp_path)[0] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_run_on_another_host_keeps_a_run_out(tmp_path):
    (tmp_path / LOCK).write_text("1\nelsewhere\n")
    with refused("in_use", match="process 1 on elsewhere"), ResultsFolder(tmp_path).lock():
        pass
    assert (tmp_path / LOCK).exists()
