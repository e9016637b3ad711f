"""Registries without a list: what the files of a package declare."""

from pathlib import Path

import pytest

from paribus.declared import PROVIDED, declared, provided


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


def test_what_lower_layers_ask_for_is_there():
    for kind, names in PROVIDED.items():
        for name in names:
            if kind != "tracker":  # whose packages may be missing
                assert provided(kind, name) is not None
