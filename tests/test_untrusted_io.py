"""Files that somebody else wrote: what is not an ordinary file or too large is refused at once."""

import os
import time
from pathlib import Path

import pytest

from paribus.engine.data import load_dataset
from paribus.engine.data.tokenizer import BpeTokenizer
from paribus.engine.setting import Data
from paribus.errors import LONGEST_MESSAGE, ParibusError, one_line
from paribus.study import load_study
from paribus.untrusted_io import files_below, read_bytes, read_text

from .tools import refused


@pytest.fixture(autouse=True)
def at_once():
    """Each test ends long before a hang would."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 5


def make_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def make_device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (make_pipe, "unreadable"),
        (make_device, "unreadable"),
        (make_folder, "unreadable"),
        (lambda path: path, "missing"),
        (lambda path: f"{path}\0", "unreadable"),
        (lambda path: path.with_name("n" * 300), "unreadable"),
        (lambda path: f"{path}\udcff\ud800", "unreadable"),
    ],
)
def test_regular_files_alone(make, code, tmp_path):
    with refused(code):
        read_bytes(make(tmp_path / "it"), 100)


def test_a_file_above_its_limit_or_not_in_utf8_is_not_read(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with refused("unreadable", match="UTF-8 text"):
        read_text(tmp_path / "latin", 100)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    with refused("unreadable", match="1,099,511,627,776 bytes.* 100;"):
        read_bytes(tmp_path / "large", 100)
    (tmp_path / "small").write_bytes(b"x" * 100)
    assert read_bytes(tmp_path / "small", 100) == b"x" * 100
    with refused("unreadable", match="100 bytes"):
        read_bytes(tmp_path / "small", 99)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x07", r"a\x1b[31mred\x07"),
        ("two\nlines\ttab", "two lines tab"),
        ("\u202eright to left\u2066", r"\u202eright to left\u2066"),
        ("half \ud800 of a pair", r"half \ud800 of a pair"),
        ("\ufffe \x85 \x9b", r"\ufffe \x9b"),
        ("größer 東京 θ ≥ 3", "größer 東京 θ ≥ 3"),
    ],
)
def test_messages_are_safe_to_print(text, shown):
    assert str(ParibusError(text)) == shown
    assert one_line(shown) == shown


def test_long_values_are_cut_and_the_way_out_stays():
    message = str(ParibusError(f"name = '{'x' * 10**6}' is too long; use a shorter one"))
    assert message.startswith("name = 'xxx") and message.endswith("shorter one")
    assert len(message) <= LONGEST_MESSAGE + 30
    assert len(str(ParibusError(f"seeds {list(range(10**5))}"))) <= LONGEST_MESSAGE + 30


def test_no_input_of_a_study_hangs_or_streams(tmp_path):
    make_pipe(tmp_path / "strange.toml")
    make_device(tmp_path / "strange")
    for read in (
        lambda: load_study(tmp_path / "strange.toml"),
        lambda: load_dataset(Data(corpus="text", path="strange"), tmp_path),
        lambda: BpeTokenizer.read(tmp_path / "strange"),
    ):
        with refused("unreadable", match="regular file"):
            read()


def test_a_corpus_is_every_visible_file_of_its_folder(tmp_path):
    folder = make_folder(tmp_path / "corpus")
    (folder / "b.txt").write_text("b")
    (folder / "a").mkdir()
    (folder / "a" / "c.txt").write_text("c")
    (folder / ".hidden").symlink_to("/dev/zero")
    (folder / "again.txt").symlink_to("b.txt")
    names = [file.relative_to(folder).as_posix() for file in files_below(folder)]
    assert names == ["a/c.txt", "again.txt", "b.txt"]
    for target, error in (("nowhere", "not exist"), ("loop", "symbolic links")):
        (folder / "loop").symlink_to(target)
        with pytest.raises(ParibusError, match=error):
            load_dataset(Data(corpus="text", path="corpus"), tmp_path)
        (folder / "loop").unlink()
    (folder / "a" / "up").symlink_to("..")  # a circle
    assert len(files_below(folder)) == 3
    make_pipe(folder / "pipe")
    with refused("unreadable"):
        load_dataset(Data(corpus="text", path="corpus"), tmp_path)
