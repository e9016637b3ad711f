"""Corpora of every form: what is read, in pieces or whole, and one line for each that is bad."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from paribus.engine.data import load_dataset, pieces as pieces_module
from paribus.engine.data.corpora import read_pieces
from paribus.engine.data.pieces import cut, documents, pieces
from paribus.engine.setting import Data
from paribus.errors import ParibusError

from ..tools import refused

HERE = Path()
DOCUMENTS = ["The first one.\nIt has “quotes” and 東京.", "second", "third\r\n"]


def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstd,
}
each_compression = pytest.mark.parametrize("suffix", COMPRESS)


def json_lines(documents: list[str], key: str = "text") -> bytes:
    return "".join(json.dumps({"id": 7, key: text}) + "\n" for text in documents).encode()


def read(folder: Path, **data: object) -> list[str]:
    return list(documents(read_pieces(Data(**data), folder)))


@each_compression
def test_text_is_read_compressed_or_not(suffix, tmp_path):
    for i, text in enumerate(DOCUMENTS):
        (tmp_path / f"{i}.txt{suffix}").write_bytes(COMPRESS[suffix](text.encode()))
    assert read(tmp_path, corpus="text", path=".") == DOCUMENTS


@each_compression
def test_json_lines_are_documents(suffix, tmp_path):
    file = tmp_path / f"a.jsonl{suffix}"
    file.write_bytes(COMPRESS[suffix](json_lines(DOCUMENTS, "body") + b"\n  \n"))
    assert read(tmp_path, corpus="jsonl", path=file.name, column="body") == DOCUMENTS
    (tmp_path / f"b.jsonl{suffix}").write_bytes(COMPRESS[suffix](json_lines(["", "x"], "body")))
    assert read(tmp_path, corpus="jsonl", path=".", column="body") == [*DOCUMENTS, "x"]


@pytest.mark.parametrize(
    ("codec", "kind"),
    [
        ("none", pa.string()),
        ("gzip", pa.large_string()),
        ("zstd", pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_a_column_of_parquet(codec, kind, tmp_path):
    table = pa.table({"n": [1, 2, 3], "text": pa.array(DOCUMENTS, kind)})
    for name in ("a", "b"):
        pq.write_table(table, tmp_path / f"{name}.parquet", compression=codec)
    assert read(tmp_path, corpus="parquet", path=".") == DOCUMENTS * 2
    pieces = list(read_pieces(Data(corpus="parquet", path="a.parquet"), tmp_path))
    assert [(piece.document, piece.is_last) for piece in pieces] == [(i, True) for i in range(3)]


def write_bad(folder: Path) -> None:
    for i in range(2):
        (folder / f"{i}.txt").write_text("good text\n" * 9)
    (folder / "2.txt").write_bytes("é".encode() * 30_000 + b"ab\xffcd")
    lines = [json_lines([f"line {i}"]).decode() for i in range(5)]
    (folder / "column.jsonl").write_text("".join([*lines, '{"txt": "x"}\n']))
    (folder / "number.jsonl").write_text("".join([*lines, '{"text": 3}\n']))
    (folder / "latin.jsonl").write_bytes("".join(lines).encode() + b'{"text": "\xe9"}\n')
    (folder / "nested.jsonl").write_text("[" * 100_000 + "\n")
    pq.write_table(pa.table({"text": DOCUMENTS}), folder / "a.parquet")
    (folder / "cut.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-20])
    twice = pa.Table.from_arrays([pa.array(DOCUMENTS)] * 2, names=["text", "text"])
    pq.write_table(twice, folder / "twice.parquet")
    content = (folder / "a.parquet").read_bytes()
    (folder / "bits.parquet").write_bytes(content[:8] + b"\xff" * 30 + content[38:])
    whole = gzip.compress(b"text " * 1000)
    (folder / "cut.gz").write_bytes(whole[: len(whole) // 2])
    for suffix in (".gz", ".zst"):
        (folder / f"no{suffix}").write_bytes(b"no such thing, but text")
    (folder / "empty").mkdir()


@pytest.mark.parametrize(
    ("corpus", "path", "message"),
    [
        ("text", ".", r"2\.txt"),
        ("text", "cut.gz", r"cut\.gz"),
        ("text", "no.gz", r"no\.gz"),
        ("text", "no.zst", r"no\.zst"),
        ("text", "x" * 5000, "cannot read"),
        ("text", "empty", "'text'"),
        ("jsonl", "column.jsonl", "data.column ="),
        ("jsonl", "number.jsonl", "data.column ="),
        ("jsonl", "latin.jsonl", "line 6"),
        ("jsonl", "nested.jsonl", "line 1"),
        ("parquet", "0.txt", r"0\.txt"),
        ("parquet", "cut.parquet", r"cut\.parquet"),
        ("parquet", "twice.parquet", "'text'"),
        ("parquet", "bits.parquet", r"bits\.parquet"),
    ],
)
def test_bad_files_are_one_line(corpus, path, message, tmp_path):
    write_bad(tmp_path)
    with pytest.raises(ParibusError, match=message):
        read(tmp_path, corpus=corpus, path=path)


def test_a_data_set_of_the_hub_is_streamed(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load_dataset(*names: object, **options: object) -> list[dict[str, str]]:
        asked.append((*names, options))
        if options["split"] == "nothing":
            raise ValueError("Bad split: nothing")
        return [{"text": text} for text in DOCUMENTS]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    hub = {"corpus": "huggingface", "name": "a/b", "revision": "abc"}
    assert read(HERE, **hub, subset="c") == DOCUMENTS
    options = {"split": "train", "revision": "abc", "streaming": True}
    assert asked == [("a/b", "c", options)]
    for wrong, message in (
        ({"column": "body"}, "data.column ="),
        ({"split": "nothing"}, "set 'a/b'"),
        ({"revision": None}, "data.revision"),
    ):
        with refused("value", match=message):
            read(HERE, **hub | wrong)


OWN = """
from paribus.extend import corpus

@corpus("plain", reads=("column",))
def plain(data, folder):
    for i in range(3):
        yield f"{data.text_column} {i} " * 20

@corpus("parts")
def parts(data, folder):
    return [iter(["a ", "b ", "c"]), "d"]

@corpus("broken")
def broken(data, folder):
    yield "good"
    raise KeyError("gone")

@corpus("wrong")
def wrong(data, folder):
    return [b"bytes"]

number = 3
"""


def test_a_users_own_corpus(tmp_path):
    (tmp_path / "ideas.py").write_text(OWN)
    texts = read(tmp_path, corpus="ideas.py:plain", column="x")
    assert texts == [f"x {i} " * 20 for i in range(3)]
    assert read(tmp_path, corpus="ideas.py:parts") == ["a b c", "d"]
    assert load_dataset(Data(corpus="ideas.py:plain", seq_len=4), tmp_path).n_documents == 3
    bad = {
        "ideas.py:broken": "ideas.py:broken.*KeyError: 'gone'",
        "ideas.py:wrong": "ideas.py:wrong.*document 1",
        "ideas.py:number": "ideas.py:number",
        "ideas.py:part": "'parts'",
        "nothing.py:f": "nothing.py",
    }
    for name, message in bad.items():
        with pytest.raises(ParibusError, match=message):
            read(tmp_path, corpus=name)


@given(st.lists(st.text("ab \n.é"), max_size=8), st.integers(1, 12))
def test_how_a_text_arrives_does_not_matter_for_its_pieces(parts, n):
    whole = "".join(parts)
    found = list(cut(parts, n))
    assert found == list(cut([whole], n))
    assert "".join(found) == whole
    assert all(n <= len(piece) <= 2 * n for piece in found[:-1])
    assert all(0 < len(piece) <= 2 * n for piece in found)


def test_pieces_say_where_documents_end(monkeypatch):
    monkeypatch.setattr(pieces_module, "cut", lambda texts: cut(texts, 3))
    found = list(pieces(["", "abc def g", iter(["x", "", "y"]), iter([]), "z"]))
    assert found == [
        ("abc", 0, False), (" def", 0, False), (" g", 0, True), ("xy", 1, True), ("z", 2, True),
    ]  # fmt: skip
