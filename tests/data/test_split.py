"""The parts of a text: where they begin, that nothing is in two of them, and the seal of one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from paribus.engine.data import load_dataset, open_test
from paribus.engine.data.duplicates import count_in_training
from paribus.engine.data.split import deduplicated
from paribus.engine.data.tokenizer import train_tokenizer
from paribus.engine.setting import Data
from paribus.errors import ParibusError

from ..tools import refused


def letters(seed: int, n: int) -> str:
    return "".join(np.random.default_rng(seed).choice(list("abcdefghijklmnop .\n"), size=n))


@pytest.fixture
def folder(tmp_path):
    for i in range(6):
        (tmp_path / f"t{i}").write_text(letters(i, 1000))
    (tmp_path / "all").mkdir()
    for i in range(6):
        (tmp_path / "all" / f"{i}.txt").write_text(letters(i, 1000))
    return tmp_path


def data(**keys: object) -> Data:
    return Data(**({"corpus": "text", "path": "t0", "seq_len": 16} | keys))


@pytest.mark.parametrize(("validation", "test"), [(0.1, 0.0), (0.25, 0.5)])
def test_three_parts_follow_one_another(validation, test, folder):
    found = load_dataset(data(validation_fraction=validation, test_fraction=test), folder)
    parts = [found.train, found.validation]
    if test:
        parts.append(open_test(found.test, {"digest": found.test.text.digest}))
    else:
        assert found.test is None
    text = found.tokenizer.decode(np.concatenate([part[:] for part in parts]))
    assert text == (folder / "t0").read_text()
    assert abs(len(found.validation) - 1000 * validation) <= 1
    assert len(found.train) == int(1000 * (1 - test - validation))
    ends = [found.windows.starts(1, t, 8).max() + 17 for t in range(50)]
    assert max(ends) <= len(found.train)


def test_parts_may_be_files_of_their_own(folder):
    found = load_dataset(data(validation_path="t1", test_path="t2"), folder)
    assert found.tokenizer.decode(found.train) == (folder / "t0").read_text()
    assert found.tokenizer.decode(found.validation) == (folder / "t1").read_text()
    sealed = open_test(found.test, {"digest": found.test.text.digest})
    assert found.tokenizer.decode(sealed[:]) == (folder / "t2").read_text()
    both = load_dataset(data(path="all", validation_path="t1", test_fraction=0.2), folder)
    assert len(both.train) == int(6006 * 0.8)
    # What is trained on has several documents, which are closed; what is held out has one.
    assert len(both.validation) == 1000 and both.tokenizer.end_of_document not in both.validation


def test_what_is_evaluated_is_capped(folder):
    whole, capped = (load_dataset(data(validation_tokens=n), folder) for n in (None, 30))
    assert capped.validation.tolist() == whole.validation[:30].tolist()
    assert capped.digests["train"] == whole.digests["train"]
    assert load_dataset(data(validation_tokens=10**9), folder).digests == whole.digests
    with refused("too_few", match="16 validation"):
        load_dataset(data(validation_tokens=16), folder)


@pytest.mark.parametrize("keys", [{"test_fraction": 0.2}, {"test_path": "t2"}])
def test_only_the_text_that_was_opened_is_read(keys, folder):
    found = load_dataset(data(**keys), folder)
    assert found.digests["test"] == found.test.text.digest
    other = load_dataset(data(test_fraction=0.3), folder)
    with refused("different", match="SHA-256"):
        open_test(other.test, {"digest": found.test.text.digest})


@pytest.mark.parametrize(("text", "test"), [("all", 0.15), ("t0", 0.0), ("utf8", 0.15)])
def test_tokenizers_share_their_evaluated_bytes(text, test, folder):
    (folder / "utf8").write_text("Où ça? 東京 était là. " * 60, encoding="utf-8")
    train_tokenizer(data(path=text), folder, 300, folder / "bpe.json")
    found = [
        load_dataset(data(path=text, tokenizer=name, test_fraction=test), folder)
        for name in ("character", "byte", "bpe.json")
    ]
    for one in found:
        parts = (one.train, one.record["train_bytes"]), (one.validation, one.held_out.n_bytes)
        for tokens, n_bytes in parts:
            assert one.tokenizer.bytes_per_token[tokens[:]].sum() == n_bytes
    assert len({one.digests["validation_text"] for one in found}) == 1
    assert len({one.digests.get("test") for one in found}) == 1
    assert len({one.held_out for one in found}) == 1
    assert len({one.record["train_bytes"] for one in found}) == 1
    assert len({one.digests["validation"] for one in found}) == 3
    files = sorted((folder / text).glob("*")) or [folder / text]
    byte = found[1]
    parts = [byte.train[:], byte.validation[:]]
    if byte.test is not None:
        parts.append(open_test(byte.test, {"digest": byte.test.text.digest})[:])
    ids = np.concatenate(parts)
    assert bytes(ids[ids < 256].tolist()) == b"".join(map(Path.read_bytes, files))


def test_a_test_text_of_its_own_gives_the_vocabulary_nothing(folder):
    (folder / "t2").write_text("abc é " * 100)
    with refused("value", match="character 'é'"):
        load_dataset(data(test_path="t2"), folder)


def overlapping(seed: int) -> list[str]:
    """Documents that copy one another: whole, in passages, in lines, and in parts of lines."""
    rng = np.random.default_rng(seed)
    pool = [letters(100 + i, int(rng.integers(20, 400))) for i in range(6)]
    long = letters(99, 3000).replace("\n", "")
    documents = []
    for _ in range(int(rng.integers(1, 12))):
        parts = []
        for _ in range(int(rng.integers(1, 6))):
            kind, text = rng.integers(5), pool[rng.integers(len(pool))]
            if kind == 0:
                parts.append(letters(int(rng.integers(10**6)), int(rng.integers(1, 200))))
            elif kind == 1:
                at = int(rng.integers(2500))
                parts.append(long[at : at + int(rng.integers(30, 500))])
            elif kind == 2:
                parts.append(text[int(rng.integers(20)) :])
            else:
                parts.append(text)
        documents.append(str(rng.choice(["\n\n", "\n", " ", "é"])).join(parts))
    return [text for text in documents if text]


@pytest.mark.parametrize("mode", ["exact", "near"])
@pytest.mark.parametrize("seed", range(6))
def test_no_held_out_text_stands_in_the_training_text(mode, seed, tmp_path):
    documents = overlapping(seed)
    (tmp_path / "all").mkdir()
    for i, text in enumerate(documents):
        (tmp_path / "all" / f"{i:02}").write_text(text, encoding="utf-8")
    (tmp_path / "own").write_text(letters(100, 150) + letters(5, 300))
    keys: dict[str, object] = {"path": "all", "seq_len": 1, "deduplicate": mode}
    keys |= [{"test_fraction": 0.2}, {"validation_path": "own"}, {}][seed % 3]
    try:
        found = load_dataset(data(**keys), tmp_path)
    except ParibusError as error:
        if error.code == "too_few":
            return
        raise
    held = [found.validation]
    if found.test is not None:
        held.append(open_test(found.test, {"digest": found.test.text.digest}))
    for part in held:
        assert not count_in_training(found.train, part[:])
    rates = found.record["deduplicated"]
    assert isinstance(rates, dict)
    assert rates["documents"] == len(documents)
    assert rates["bytes"] == sum(len(text.encode()) for text in documents)
    text = found.tokenizer.decode(found.train)
    end = "<|endofdocument|>"
    assert len(text.replace(end, "").encode()) == rates["train_bytes"] - rates["train_bytes_cut"]


def test_repetitions_by_hand():
    a, b, c = ("".join(chr(97 + (i * k) % 23) for i in range(120)) for k in (3, 5, 7))
    documents = [f"{a}\n\n{b}", a, f"{a}\n\n{b}", f"{c}\n\nshort\n\n{b}", f"{c}\n\nshort"]
    found = deduplicated(lambda: documents, "exact", 0.0, 0.0)
    assert ["".join(p.text for p in found.train if p.document == d) for d in range(2)] == [
        f"{a}\n\n{b}", f"{c}\n\nshort\n\n",
    ]  # fmt: skip
    assert found.rates == {
        "documents": 5, "documents_dropped": 2, "passages": 6, "passages_dropped": 3,
        "bytes": 120 * 8 + 2 * 5 + 5 * 2 - 2, "bytes_dropped": 0,
        "train_bytes": 0, "train_bytes_cut": 0,
    } | {key: found.rates[key] for key in ("bytes", "bytes_dropped", "train_bytes")}  # fmt: skip
    assert found.rates["bytes"] - found.rates["bytes_dropped"] == found.rates["train_bytes"]


def test_near_repetitions_go_only_where_asked():
    text = letters(7, 400).replace("\n", " ").strip()
    changed = text[:200] + ("x" if text[200] != "x" else "y") + text[201:]
    for mode, documents in (("exact", 2), ("near", 1)):
        found = deduplicated(lambda: [text, changed], mode, 0.0, 0.0)
        assert len({piece.document for piece in found.train}) == documents


@given(st.lists(st.text("ab \né", min_size=1), min_size=1), st.floats(0, 0.9), st.floats(0, 0.9))
def test_only_repetitions_are_lost(documents, validation, test):
    if validation + test >= 1:
        return
    found = deduplicated(lambda: documents, "exact", validation, test)
    texts = ["".join(p.text for p in part) for part in (found.train, found.validation, found.test)]
    kept = [text for text in dict.fromkeys(documents) if text.strip()]
    # Documents this short have no passages, and runs of 50 bytes are few.
    if not found.rates["train_bytes_cut"]:
        assert "".join(texts) == "".join(kept)
    total = sum(map(len, kept))
    longest = max((len(line) for text in kept for line in text.split("\n")), default=0) + 1
    assert abs(len(texts[2]) - total * test) <= longest + 1


def test_a_sealed_part_of_less_than_a_window_is_refused(folder):
    (folder / "tiny").write_text("abc")
    for keys in ({"test_fraction": 0.001}, {"test_path": "tiny"},
                 {"test_fraction": 1e-9, "deduplicate": "held-out"}):  # fmt: skip
        with refused("too_few", match="test text"):
            load_dataset(data(**keys), folder)
