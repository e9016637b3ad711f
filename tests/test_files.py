"""Files and folders that are whole or not there, whoever is killed in between."""

import errno
import os
from typing import Any

import pytest

from paribus import files
from paribus.files import remove_folder, sweep, whole_folder, write_bytes

from .tools import refused


def test_leftovers_of_the_dead_are_swept(tmp_path):
    (tmp_path / "deep" / ".folder.x1.part").mkdir(parents=True)
    (tmp_path / "deep" / ".in.bin.x2.part").write_text("half")
    (tmp_path / "mine.part").write_text("not ours")
    (tmp_path / ".link.part").symlink_to("mine.part")
    sweep(tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"deep", "mine.part", ".link.part"}


def test_a_folder_is_whole_or_not_there(tmp_path):
    def fails() -> None:
        with whole_folder(tmp_path / "a") as folder:
            (folder / "half").write_text("x")
            raise OSError("of the body")

    with pytest.raises(OSError, match="the body"):
        fails()
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis").write_text("x")
    with refused("system", match="cannot write"), whole_folder(tmp_path / "full"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    remove_folder(tmp_path / "full")
    remove_folder(tmp_path / "full")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "free disk space"), (errno.EIO, "another folder")]
)
def test_full_disk(tmp_path, monkeypatch, code, words):
    def fails(file: Any, content: bytes) -> None:
        file.write(content[: len(content) // 2])
        raise OSError(code, os.strerror(code))

    write_bytes(tmp_path / "a", b"old")
    monkeypatch.setattr(files, "_store", fails)
    with refused("system", match=words) as caught:
        write_bytes(tmp_path / "a", b"new")
    assert "\n" not in str(caught.value) and os.strerror(code) in str(caught.value)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1
