"""Tokens in memory and in the cache: the same text and digests, made once; what is damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paribus.engine.data import load_dataset, source, tokens
from paribus.engine.data.cache import cached_tokens
from paribus.engine.data.dataset import Dataset
from paribus.engine.data.tokens import tokens_digest
from paribus.engine.setting import Data

from ..tools import refused


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_digests_of_token_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = (np.arange(2500) * 31 % 65_000).astype(np.uint16)
    expected = hashlib.sha256(ids.astype("<u4")).hexdigest()
    assert tokens_digest(ids) == tokens_digest(ids.astype(np.uint32)) == expected
    monkeypatch.setattr(tokens.chunks, "__defaults__", (1000, 0))
    assert tokens_digest(ids) == expected
    assert tokens_digest(ids[:0]) == hashlib.sha256().hexdigest()


WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog")


def write_text(folder: Path, n_documents: int = 3) -> None:
    (folder / "texts").mkdir(exist_ok=True)
    for i in range(n_documents):
        n = 900 + 100 * i
        words = " ".join(np.random.default_rng(n).choice(WORDS, size=n))
        text = f"Number {i}. {words}Où ça? 東京\n"
        (folder / "texts" / f"{i}.txt").write_text(text, encoding="utf-8")


DATA = Data(corpus="text", path="texts", seq_len=16)


def same(first: Dataset, second: Dataset) -> None:
    assert first.digests == second.digests
    assert first.record == second.record
    assert (first.train == second.train).all()
    assert (first.validation == second.validation).all()
    assert first.tokenizer.vocabulary == second.tokenizer.vocabulary


@pytest.mark.parametrize("n_documents", [1, 3])
def test_neither_cores_nor_pieces_change_a_token(
    n_documents: int, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path, n_documents)
    first = load_dataset(DATA, tmp_path)
    monkeypatch.setattr("paribus.engine.data.pieces.PIECE_CHARACTERS", 300)
    for cores in (1, 4):
        shutil.move(cache, tmp_path / f"cache of {cores}")
        monkeypatch.setattr(source.os, "cpu_count", lambda cores=cores: cores)
        again = load_dataset(DATA, tmp_path)
        assert isinstance(again.train, np.memmap)
        same(first, again)


def test_nothing_is_tokenized_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    first = load_dataset(DATA, tmp_path)

    def never(*args: object) -> Iterator[None]:
        raise AssertionError("read again")

    monkeypatch.setattr(source, "read_pieces", never)
    monkeypatch.setattr("paribus.engine.data.cache.tokens_digest", never)
    for seq_len in (8, 16):
        same(first, load_dataset(DATA.model_copy(update={"seq_len": seq_len}), tmp_path))


@pytest.mark.parametrize("keeps_time", [False, True])
def test_changed_texts(keeps_time: bool, tmp_path: Path) -> None:
    write_text(tmp_path)
    first = load_dataset(DATA, tmp_path)
    file = tmp_path / "texts" / "1.txt"
    then = file.stat().st_mtime_ns
    file.write_bytes(file.read_bytes().replace(b"fox", b"dog"))
    if keeps_time:
        os.utime(file, ns=(then, then))
    assert load_dataset(DATA, tmp_path).digests["corpus"] != first.digests["corpus"]


def test_half_written_caches(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    encoded = source.encoded

    def broken(*args: object) -> Iterator[np.ndarray]:
        for number, ids in enumerate(encoded(*args)):
            if number == 2:
                raise KeyboardInterrupt
            yield ids

    monkeypatch.setattr("paribus.engine.data.pieces.PIECE_CHARACTERS", 300)
    with monkeypatch.context() as patch:
        patch.setattr(source, "encoded", broken)
        with pytest.raises(KeyboardInterrupt):
            load_dataset(DATA, tmp_path)
    assert list((cache / "tokens").glob("*.part"))
    first = load_dataset(DATA, tmp_path)
    for file in (cache / "tokens").glob("*.bin"):
        file.unlink()
    same(first, load_dataset(DATA, tmp_path))


def make() -> np.ndarray:
    ids = (np.arange(3500) % 97).astype(np.uint16)
    parts = [ids[:10], ids[10:2900], ids[2900:]]
    made, sha256 = cached_tokens({"name": "test"}, lambda: iter(parts), ids.dtype)
    assert made.tolist() == ids.tolist() and sha256 == tokens_digest(ids)
    return made


@pytest.mark.parametrize("content", [b"", b"{{"])
def test_damaged_tokens_are_one_line(content: bytes) -> None:
    Path(make().filename).write_bytes(content)
    with refused("unreadable", match="delete"):
        make()


def test_an_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "file"))
    with refused("system", match="PARIBUS_CACHE"):
        load_dataset(DATA, tmp_path)
