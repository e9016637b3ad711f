"""Executors are found by name and file, and refused in one line."""

import pytest

from paribus.cli import main
from paribus.runs.executors import find_backend
from paribus.runs.executors.jobs import JobState
from paribus.runs.executors.local import Local
from paribus.runs.executors.slurm import Slurm

from ..tools import refused


def test_backends_are_found_by_name():
    assert isinstance(find_backend("local"), Local)
    with refused("value", match="'locla'"):
        find_backend("locla")


def test_a_file_names_a_backend_and_the_command_line_comes_first(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text('kind = "slurm"\ngpus = 1\njobs = 3\ntime = "12:00:00"\n')
    backend = find_backend(str(file), {"jobs": 4})
    assert isinstance(backend, Slurm)
    assert (backend.options.gpus, backend.options.jobs, backend.options.time) == (1, 4, "12:00:00")
    file.write_text("gpus = 1")
    with refused("value", match="unknown backend"):
        find_backend(str(file))


@pytest.mark.parametrize("verb", ["plan quickstart", "register quickstart", "run quickstart"])
def test_every_verb_that_starts_workers_takes_a_backend(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--backend", "slurm", "--backend-option"]
    assert main([*verb.split(), *given, "node=2"]) == 2
    assert "'node'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_squeue_is_read(monkeypatch):
    lines = "paribus-a-1|7|0|RUNNING|None|n1|7\nparibus-a-1|7|1|CANCELLED|None||8\nother|9|0|R|x||9"
    monkeypatch.setattr("paribus.runs.executors.slurm._ask", lambda *_: lines)
    assert find_backend("slurm").states(["paribus-a-1"]) == {
        ("paribus-a-1", 0): JobState("7_0", "running", "RUNNING", "n1"),
        ("paribus-a-1", 1): JobState("7_1", "ended", "CANCELLED", is_cancelled=True),
    }
