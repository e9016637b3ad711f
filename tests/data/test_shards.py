"""Tokens in memory and in shards: the same text, the same digests, made once; what is damaged."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.engine.data import batch, load_dataset, source, tokens
from paribus.engine.data import cache as cache_module
from paribus.engine.data.cache import sharded
from paribus.engine.data.dataset import Dataset
from paribus.engine.data.tokens import ShardedTokens, Shards, chunks, part, tokens_digest, windows
from paribus.engine.setting import Data
from paribus.errors import ParibusError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and shards short enough for a text to have many."""
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "cache"))
    for module in (cache_module, tokens):
        monkeypatch.setattr(module, "SHARD_TOKENS", 1000)
    return tmp_path / "cache"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is small."""
    monkeypatch.setattr(source, "SMALL_BYTES", 0)


def in_shards(folder: Path, ids: np.ndarray, size: int = 1000) -> ShardedTokens:
    """`ids` in files of `size`."""
    files = []
    for start in range(0, len(ids), size):
        files.append(folder / f"{start}.bin")
        files[-1].write_bytes(ids[start : start + size].tobytes())
    return ShardedTokens(Shards(tuple(files), ids.dtype, size), 0, len(ids))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 90), st.integers(1, 30))
def test_shards_are_read_like_an_array(draw: st.DataObject, n: int, size: int) -> None:
    ids = np.arange(n, dtype=np.uint16) * 7
    with tempfile.TemporaryDirectory() as folder:
        whole = in_shards(Path(folder), ids, size)
        start, stop = sorted(draw.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
        of_shards, of_array = part(whole, start, stop), ids[start:stop]
        assert len(of_shards) == len(of_array)
        places = slice(*sorted(draw.draw(st.tuples(*[st.integers(-n - 3, n + 3)] * 2))))
        assert of_shards[places].tolist() == of_array[places].tolist()
        assert of_shards[::3].tolist() == of_array[::3].tolist()
        if len(of_array):
            at = draw.draw(st.integers(-len(of_array), len(of_array) - 1))
            assert of_shards[at] == of_array[at]
            length = draw.draw(st.integers(0, len(of_array)))
            starts = np.arange(len(of_array) - length + 1)
            assert windows(of_shards, starts, length).tolist() == [
                of_array[i : i + length].tolist() for i in starts
            ]
        with pytest.raises(IndexError):
            of_shards[len(of_array)]
        got = [chunk.tolist() for chunk in chunks(of_shards, 7, overlap=2)]
        assert got == [chunk.tolist() for chunk in chunks(of_array, 7, overlap=2)]
        assert np.asarray(of_shards).tolist() == of_array.tolist()
        assert pickle.loads(pickle.dumps(of_shards))[:].tolist() == of_array.tolist()


@pytest.mark.parametrize("n", [0, 1, 999, 1000, 1001, 5300])
def test_the_digest_is_that_of_the_ids_however_they_are_stored(n: int, tmp_path: Path) -> None:
    ids = (np.arange(n) * 31 % 65_000).astype(np.uint16)
    assert tokens_digest(ids) == tokens_digest(ids.astype(np.uint32))
    assert tokens_digest(ids) == tokens_digest(in_shards(tmp_path, ids, 300))
    if n:
        changed = ids.copy()
        changed[-1] += 1
        assert tokens_digest(changed) != tokens_digest(ids)


def test_a_short_text_has_the_digest_that_it_always_had() -> None:
    ids = np.arange(500, dtype=np.uint16)
    expected = hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()
    assert tokens_digest(ids) == expected


WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog")


def words(n: int) -> str:
    return " ".join(np.random.default_rng(n).choice(WORDS, size=n))


def write_text(folder: Path, n_documents: int = 3, n_words: int = 900) -> None:
    (folder / "texts").mkdir(exist_ok=True)
    for i in range(n_documents):
        text = f"Number {i}. " + words(n_words + 100 * i) + "Où ça? 東京\n"
        (folder / "texts" / f"{i}.txt").write_text(text, encoding="utf-8")


DATA = Data(corpus="text", path="texts", seq_len=16)


def same(one: Dataset, other: Dataset) -> None:
    assert one.digests == other.digests
    assert one.record == other.record
    assert (one.train[:] == other.train[:]).all()
    assert (one.validation[:] == other.validation[:]).all()
    assert one.tokenizer.vocabulary == other.tokenizer.vocabulary


@pytest.mark.parametrize("n_documents", [1, 3])
@pytest.mark.parametrize("cores", [1, 4])
def test_a_large_text_is_the_same_as_a_small_one(
    n_documents: int, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path, n_documents)
    small = load_dataset(DATA, tmp_path)
    assert isinstance(small.train, np.ndarray)
    assert not (tmp_path / "cache").exists()

    monkeypatch.setattr(source, "SMALL_BYTES", 0)
    monkeypatch.setattr(source.os, "cpu_count", lambda: cores)
    monkeypatch.setattr("paribus.engine.data.pieces.PIECE_CHARACTERS", 300)
    large = load_dataset(DATA, tmp_path)
    assert isinstance(large.train, ShardedTokens)
    assert len(large.train.shards.files) > 3
    same(small, large)
    for t in range(5):
        windows = [batch(d.train, 1, t, 4, 16) for d in (small, large)]
        assert windows[0].tobytes() == windows[1].tobytes()


@pytest.mark.usefixtures("large")
def test_nothing_is_tokenized_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    monkeypatch.setattr("paribus.engine.data.cache.SETTLED_SECONDS", 0.0)
    first = load_dataset(DATA, tmp_path)

    def never(*args: object) -> Iterator[None]:
        raise AssertionError("read again")

    monkeypatch.setattr(source, "encoded", never)
    same(first, load_dataset(DATA.model_copy(update={"seq_len": 8}), tmp_path))
    monkeypatch.setattr(source, "scan", never)
    monkeypatch.setattr("paribus.engine.data.split.tokens_digest", never)
    same(first, load_dataset(DATA, tmp_path))
    # Another process, as a worker is one.
    code = (
        "import sys; from pathlib import Path; from paribus.study import Data;"
        "from paribus.engine.data import cache, load_dataset, source, tokens;"
        " source.SMALL_BYTES = 0; cache.SETTLED_SECONDS = 0.0;"
        "cache.SHARD_TOKENS = tokens.SHARD_TOKENS = 1000; source.scan = source.encoded = None;"
        "d = load_dataset(Data(corpus='text', path='texts', seq_len=16), Path(sys.argv[1]));"
        "print(d.digests['train'])"
    )  # fmt: skip
    found = subprocess.check_output([sys.executable, "-c", code, str(tmp_path)], text=True)
    assert found.strip() == first.digests["train"]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("keeps_time", [False, True])
def test_changed_texts(keeps_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if keeps_time:
        monkeypatch.setattr("paribus.engine.data.cache.SETTLED_SECONDS", 0.0)
    write_text(tmp_path)
    first = load_dataset(DATA, tmp_path)
    file = tmp_path / "texts" / "1.txt"
    then = file.stat().st_mtime_ns
    file.write_bytes(file.read_bytes().replace(b"fox", b"dog"))
    if keeps_time:
        os.utime(file, ns=(then, then))
    assert load_dataset(DATA, tmp_path).digests["corpus"] != first.digests["corpus"]


@pytest.mark.usefixtures("large")
def test_tokens_are_made_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    made, found = [], []
    encoded = source.encoded

    def slowly(*args: object) -> Iterator[np.ndarray]:
        made.append(1)
        time.sleep(0.2)
        yield from encoded(*args)

    monkeypatch.setattr(source, "encoded", slowly)
    both = [
        threading.Thread(target=lambda: found.append(load_dataset(DATA, tmp_path)))
        for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(made) == 2  # of each part once
    same(*found)


@pytest.mark.usefixtures("large")
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
    assert not list((cache / "tokens").glob("*/manifest.json"))
    assert not list((cache / "tokens").rglob("*.bin"))
    # What a killed process leaves has another name, and is not taken for the tokens.
    write_shards_aside = cache / "tokens" / ".of-a-killed-one.part"
    write_shards_aside.mkdir(parents=True, exist_ok=True)
    (write_shards_aside / "00000.bin").write_bytes(b"half")
    assert load_dataset(DATA, tmp_path).n_documents == 3


@pytest.mark.usefixtures("large")
def test_changed_while_read(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    found = source.Source(DATA, tmp_path).scan()
    from paribus.engine.data.tokenizer import CharacterTokenizer

    tokenizer = CharacterTokenizer.of([found.characters], True)
    (tmp_path / "texts" / "1.txt").write_text("the fox ")
    with pytest.raises(ParibusError, match="changed while it was read; leave its files"):
        source.tokenized(source.Source(DATA, tmp_path), found, tokenizer, True)
    assert not list((cache / "tokens").glob("*/*"))


def make(cache: Path, n: int = 3500) -> tuple[ShardedTokens, np.ndarray]:
    ids = (np.arange(n) % 97).astype(np.uint16)
    parts = [ids[:10], ids[10:2900], ids[2900:]]
    return sharded({"name": "test"}, lambda: iter(parts), ids.dtype), ids


@pytest.mark.parametrize("how", ["changed", "longer", "shorter", "gone", "with its time"])
def test_a_changed_shard_is_named(how: str, cache: Path) -> None:
    made, ids = make(cache)
    assert made[:].tolist() == ids.tolist()
    file = made.shards.files[2]
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        before = file.stat()
        swapped = content[2:4] + content[:2] + content[4:]
        others = {"longer": content * 2, "shorter": content[:-2]}
        file.write_bytes(others.get(how, swapped))
        then = before.st_mtime_ns if how == "with its time" else 1
        os.utime(file, ns=(then, then))
    with pytest.raises(ParibusError, match=rf"00002\.bin .*delete the folder .*{file.parent.name}"):
        make(cache)


@pytest.mark.parametrize(
    "damage",
    [
        *[b"", b"{", b"[]", b'{"about": {}}', b"[" * 100_000],
        *[("shards", []), ("shards", 5), ("dtype", "O"), ("about", 3), ("tokens", "x")],
        *[("shards/0", 1), ("shards/0/tokens", "x"), ("shards/0/tokens", 1)],
        *[("shards/0/tokens", -1), ("shards/0/sha256", None)],
    ],
)
def test_a_damaged_manifest_is_one_line(damage: bytes | tuple[str, object], cache: Path) -> None:
    file = make(cache)[0].shards.files[0].parent / "manifest.json"
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    else:
        manifest = json.loads(file.read_bytes())
        *above, last = [int(step) if step.isdigit() else step for step in damage[0].split("/")]
        node = manifest
        for step in above:
            node = node[step]
        node[last] = damage[1]
        file.write_text(json.dumps(manifest))
    with pytest.raises(ParibusError, match=r"manifest.json cannot be read; delete the folder"):
        make(cache)


@pytest.mark.usefixtures("large")
def test_an_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "file"))
    with pytest.raises(ParibusError, match=r"cannot write the cache .*; set PARIBUS_CACHE"):
        load_dataset(DATA, tmp_path)
