"""Registries without a list: what the files of a package declare."""

from pathlib import Path

import pytest

from paribus.declared import declared
from paribus.engine.evaluation import Measure
from paribus.engine.evaluation.measures import all_measures
from paribus.engine.observation import Probe
from paribus.engine.probes import shipped_probes
from paribus.engine.tasks import all_tasks
from paribus.engine.tasks.task import Task

REGISTRIES = {
    "paribus.engine.probes": (Probe, lambda: list(shipped_probes().values())),
    "paribus.engine.evaluation.measures": (Measure, lambda: list(all_measures())),
    "paribus.engine.tasks.generators": (Task, lambda: list(all_tasks().values())),
}


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    """An empty package; its name is that of the folder, another one for every test."""
    folder = tmp_path / f"declares_{request.node.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_files_are_read_by_name_and_then_by_line(package):
    (package / "b.py").write_text("from pathlib import Path\nz, a = Path('z'), Path('a')\n")
    (package / "a.py").write_text("from pathlib import Path\nm, no_path = Path('m'), 'x'\n")
    assert list(declared(package.name, Path)) == ["m", "z", "a"]


def test_two_of_one_name_are_refused(package):
    for name in ("one", "two"):
        (package / f"{name}.py").write_text("from pathlib import Path\nz = Path('z')\n")
    with pytest.raises(ValueError, match="path 'z'"):
        declared(package.name, Path)


@pytest.mark.parametrize("name", REGISTRIES)
def test_the_registries_that_ship_are_what_their_files_declare(name):
    kind, found = REGISTRIES[name]
    assert declared(name, kind).keys() == {value.name for value in found()}
    assert len(found()) > 5
