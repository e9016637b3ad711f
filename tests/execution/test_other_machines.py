"""A job on a machine whose clock differs: a process of this one, which really has another clock."""

import sys

import pytest

import paribus

from .job_backend import Options, Processes
from .test_run import canonical_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="jobs are found in /proc"),
]
SHIFTED = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
now, now_ns = time.time, time.time_ns
time.time = lambda: now() - 86_400
time.time_ns = lambda: now_ns() - 86_400 * 10**9
"""


class Elsewhere(Processes):
    """Jobs with a folder before all others on Python's path."""

    def submit(self, name, commands, scratch):
        home = self.options.home
        changed = [[env, path.replace("=", f"={home}:", 1), *more] for env, path, *more in commands]
        super().submit(name, changed, scratch)


def test_a_clock_that_differs(trained, tmp_path):
    """By a day: no clock counts in a record."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "sitecustomize.py").write_text(SHIFTED)
    backend = Elsewhere(Options(home=str(home), jobs=1))
    ours = paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert (home / "begun").exists()
    assert canonical_bytes(ours) == canonical_bytes(trained.results)
