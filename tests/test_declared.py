"""Registries without a list: what the files of a package declare."""

from pathlib import Path

from paribus.declared import PROVIDED, declared, provided


def test_files_are_read_by_name_and_then_by_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "declares").mkdir()
    lines = {"__init__": "", "b": "z, a = Path('z'), Path('a')", "a": "m = Path('m')"}
    for name, line in lines.items():
        (tmp_path / "declares" / f"{name}.py").write_text(f"from pathlib import Path\n{line}\n")
    assert list(declared("declares", Path)) == ["m", "z", "a"]


def test_what_lower_layers_ask_for_is_there():
    for kind, names in PROVIDED.items():
        for name in names:
            if kind != "tracker":  # whose packages may be missing
                assert provided(kind, name) is not None
