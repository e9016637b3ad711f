"""Files and folders that are whole or not there, whoever is killed in between."""

import errno
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from paribus import files
from paribus.errors import ParibusError
from paribus.files import remove_folder, sweep, whole_folder, write_bytes

# Holds a half-written file and a half-written folder until it is killed.
WRITER = """
import sys, time
from pathlib import Path
from paribus import files
def store(file, content):
    file.write(content[:1]); file.flush()
    print("writing", flush=True)
    time.sleep(60)
files._store = store
with files.whole_folder(Path(sys.argv[1]) / "folder") as folder:
    files.write_bytes(folder / "in.bin", b"content")
"""


@pytest.fixture
def writer(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_leftovers_of_the_dead_are_swept(writer, tmp_path):
    (partial,) = tmp_path.glob(".folder.*.part")
    assert [path.name[:8] for path in partial.iterdir()] == [".in.bin."]
    sweep(tmp_path)
    assert list(partial.iterdir())
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (tmp_path / "mine.part").write_text("not ours")
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.part"]


def test_a_rewritten_folder_has_no_rest(writer, tmp_path):
    writer.kill()
    writer.wait()
    with whole_folder(tmp_path / "folder") as folder:
        write_bytes(folder / "a", b"1")
        assert not (tmp_path / "folder").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_is_whole_or_not_there(tmp_path):
    def fails() -> None:
        with whole_folder(tmp_path / "a") as folder:
            (folder / "half").write_text("x")
            raise OSError("of the body")

    with pytest.raises(OSError, match="of the body"):
        fails()
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis").write_text("x")
    with pytest.raises(ParibusError, match="cannot write"), whole_folder(tmp_path / "full"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    remove_folder(tmp_path / "full")
    remove_folder(tmp_path / "full")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "make room and run again"), (errno.EIO, "another folder")]
)
def test_full_disk(tmp_path, monkeypatch, code, words):
    def fails(file: Any, content: bytes) -> None:
        file.write(content[: len(content) // 2])
        raise OSError(code, os.strerror(code))

    write_bytes(tmp_path / "a", b"old")
    monkeypatch.setattr(files, "_store", fails)
    with pytest.raises(ParibusError, match=words) as caught:
        write_bytes(tmp_path / "a", b"new")
    assert "\n" not in str(caught.value) and os.strerror(code) in str(caught.value)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1
