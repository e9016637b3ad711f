"""Executors are found by name, import path and file, and refused in one line."""

from pathlib import Path

import pytest

from paribus.cli import main
from paribus.declared import declared
from paribus.errors import ParibusError
from paribus.runs.executors import BackendClass, find_backend
from paribus.runs.executors.local import Local


def test_backends_are_found_by_name():
    assert isinstance(find_backend("local"), Local)
    assert find_backend("local").name == "local"
    assert declared("paribus.runs.executors", BackendClass).keys() == {"local", "ray", "slurm"}
    with pytest.raises(ParibusError, match=r"no backend 'locla': did you mean 'local'.*executors/"):
        find_backend("locla")


OWN = """
from paribus.extend import JobBackend, JobOptions, backend

class Wanted(JobOptions):
    partition: str
    nodes: int = 1

@backend("cluster", options=Wanted)
class Cluster(JobBackend):
    pass

class NoBackend:
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The file of a user's own backends, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.py").write_text(OWN)
    return "cluster.py:"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Clustr", {}, "no backend of that name: did you mean 'Cluster'"),
        ("Cluster", {}, "--backend-option of 'cluster.py:Cluster': 'partition' is missing"),
        ("Cluster", {"partition": "a", "node": 2}, "unknown key 'node': did you mean 'nodes'"),
        ("NoBackend", {}, "NoBackend is not a backend"),
    ],
)
def test_a_backend_that_is_none_is_told_in_one_line(own, name, options, words):
    with pytest.raises(ParibusError) as told:
        find_backend(own + name, options)
    assert f"--backend {own}{name}" in str(told.value) or "--backend-option" in str(told.value)
    assert words in str(told.value)


def test_no_backend_is_taken_from_a_results_folder(own, tmp_path):
    """Nor does a study name one: that would let a stranger's folder run code."""
    held = tmp_path / "theirs" / "sources"
    held.mkdir(parents=True)
    (tmp_path / "cluster.py").unlink()
    (held / "cluster.py").write_text("open('ran', 'w')")
    (held.parent / "study.json").write_text("{}")
    with pytest.raises(ParibusError, match=r"lies in the results folder .*theirs, which is data"):
        find_backend("theirs/sources/cluster.py:Cluster", {"partition": "a"})
    with pytest.raises(ParibusError, match=r"no file .*cluster\.py.*start at the current folder"):
        find_backend(own + "Cluster")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "verb",
    [
        "plan quickstart",
        "register quickstart",
        "run quickstart",
        "evaluate r",
    ],
)
def test_every_verb_that_starts_workers_takes_a_backend(verb, own, capsys):
    assert main([*verb.split(), "--backend", f"{own}Cluster", "--backend-option", "nodes=2"]) == 2
    told = capsys.readouterr().err
    assert told.endswith("of 'cluster.py:Cluster': 'partition' is missing; it must be given\n")
    assert told.count("\n") == 1 or verb.startswith(("run", "register"))
    assert not Path("r").exists() and not Path("results").exists()
