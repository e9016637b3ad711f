"""Jobs on machines that are not as they should be: each told in one line, and a later run goes on.

The machines are processes of this one, which really do not see a folder, have another version
installed, another clock, or no memory left.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import paribus
from paribus.errors import ParibusError

from .conftest import Trained
from .job_backend import Options, Processes
from .test_run import canonical_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces of mounts, and limits"),
]
SHIFTED = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
now, now_ns = time.time, time.time_ns
time.time = lambda: now() - 86_400
time.time_ns = lambda: now_ns() - 86_400 * 10**9
"""
HIDDEN = 'mount -t tmpfs none "$1" && shift && exec "$@"'


class Elsewhere(Processes):
    """Jobs that another program starts, with a folder before all others on Python's path."""

    def __init__(self, home: Path, *before: str, path: str = "", retries: int = 1) -> None:
        home.mkdir()
        super().__init__(Options(home=str(home), jobs=1, retries=retries))
        self.before, self.path = before, path

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        changed = []
        for command in commands:
            env, path, *program = command
            if self.path:
                path = path.replace("=", f"={self.path}:", 1)
            changed.append([*self.before, env, path, *program])
        super().submit(name, changed, scratch)


def refused(trained: Trained, results: Path, backend: Processes) -> str:
    """Return the line in which a run by jobs ends; without the fault it then ends well."""
    with pytest.raises(ParibusError) as told:
        paribus.run(trained.study, results, backend=backend, device="cpu")
    assert "\n" not in str(told.value)
    again = Elsewhere(results.parent / "again")
    ours = paribus.run(trained.study, results, backend=again, device="cpu")
    assert canonical_bytes(ours) == canonical_bytes(trained.results)
    return str(told.value)


def hiding(folder: Path) -> tuple[str, ...]:
    """Return what starts a program that does not see the content of a folder."""
    hidden = ("unshare", "--mount", "sh", "-c", HIDDEN, "sh", str(folder))
    if subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of one's own here")
    return hidden


def test_a_results_folder_that_a_machine_does_not_see(trained, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    backend = Elsewhere(tmp_path / "home", *hiding(there))
    said = refused(trained, there / "r", backend)
    assert str(there / "r" / ".run") in said and "every machine sees" in said


def test_a_clock_that_differs(trained, tmp_path):
    """By a day: no clock counts in a record."""
    (tmp_path / "shifted").mkdir()
    (tmp_path / "shifted" / "sitecustomize.py").write_text(SHIFTED)
    backend = Elsewhere(tmp_path / "home", path=str(tmp_path / "shifted"))
    ours = paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert (tmp_path / "shifted" / "begun").exists()
    assert canonical_bytes(ours) == canonical_bytes(trained.results)
