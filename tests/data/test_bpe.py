"""Byte-level BPE: the ids of the library itself, nothing lost, and a study that uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import (
    Tokenizer as HuggingFaceTokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from paribus.engine.data import load_dataset
from paribus.engine.data.corpora import read_pieces
from paribus.engine.data.pieces import cut, pieces
from paribus.engine.data.source import encoded
from paribus.engine.data.tokenizer import BpeTokenizer, tokenizer_of, train_tokenizer
from paribus.engine.execution.start import read_data
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.study import parse_study

TEXT = "The quick brown fox, 12 of them, jumps over the dog.\n" * 40 + "Où ça? 東京 🦊 “naïve”\n"


def train(
    text: str = TEXT,
    *,
    end: str | None = "<|endoftext|>",
    alphabet: bool = True,
    size: int = 300,
    **pre_tokenizer: Any,
) -> HuggingFaceTokenizer:
    tokenizer = HuggingFaceTokenizer(models.BPE())
    options = {"add_prefix_space": False} | pre_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**options)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=[] if end is None else [end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def save(tokenizer: HuggingFaceTokenizer, folder: Path) -> Path:
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return file


@pytest.fixture(scope="module")
def theirs() -> HuggingFaceTokenizer:
    return train()


@pytest.fixture(scope="module")
def ours(theirs: HuggingFaceTokenizer, tmp_path_factory: pytest.TempPathFactory) -> BpeTokenizer:
    return BpeTokenizer.read(save(theirs, tmp_path_factory.mktemp("bpe")))


def test_the_vocabulary_is_the_librarys(ours: BpeTokenizer, theirs: HuggingFaceTokenizer) -> None:
    assert ours.vocab_size == theirs.get_vocab_size() == 300
    assert ours.end_of_document == theirs.token_to_id("<|endoftext|>") == 0
    whole = [theirs.decode([i]) for i in range(1, 300)]
    assert ours.vocabulary == ["<|endoftext|>", *whole]


def ids_of(tokenizer: BpeTokenizer, documents: list[str]) -> np.ndarray:
    """All documents in one row; of several, each is closed by its end."""
    return np.concatenate(list(encoded(pieces(documents), tokenizer, len(documents) > 1)))


def test_documents_by_hand(ours: BpeTokenizer, theirs: HuggingFaceTokenizer) -> None:
    fox, dog = (theirs.encode(text).ids for text in ("fox", "lazy dog"))
    ids = ids_of(ours, ["fox", "lazy dog"])
    assert (ids.dtype, ids.tolist()) == (np.uint16, [*fox, 0, *dog, 0])
    assert ours.decode(ids) == "fox<|endoftext|>lazy dog<|endoftext|>"
    assert ids_of(ours, ["fox"]).tolist() == fox
    spelled = ids_of(ours, ["a <|endoftext|> b"])  # it is text, not the token
    assert 0 not in spelled and ours.decode(spelled) == "a <|endoftext|> b"


@given(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.text("ab1 \n\t\r.,'s!_é東\x1c\x85\u00a0\u2028\u3000(<|>")
)
def test_any_text_has_the_librarys_ids_and_comes_back(
    ours: BpeTokenizer, theirs: HuggingFaceTokenizer, text: str
) -> None:
    ids = ours.encode(text)
    assert ids.tolist() == theirs.encode(text).ids
    assert ours.decode(ids) == text == theirs.decode(ids.tolist())
    assert ours.characters_per_token[ids].sum() == len(text)


def test_pieces_have_the_tokens_of_the_whole_text(tmp_path: Path) -> None:
    text = "".join(piece.text for piece in read_pieces(Data(corpus="pydoc"), tmp_path))[:60_000]
    ours = BpeTokenizer.read(save(train(text, size=600), tmp_path))
    parts = [ours.encode(piece) for piece in cut([text], 500)]
    assert len(parts) > 50
    assert np.concatenate(parts).tolist() == ours.encode(text).tolist()


def test_ids_beyond_sixteen_bits_are_kept(theirs: HuggingFaceTokenizer, tmp_path: Path) -> None:
    many = HuggingFaceTokenizer.from_str(theirs.to_str())
    many.add_tokens([f"<{i}>" for i in range(2**16)])
    ids = ids_of(BpeTokenizer.read(save(many, tmp_path)), ["<65535>"])
    assert (ids.dtype, ids.tolist()) == (np.uint32, [300 + 65535])


def lossy(kind: str) -> HuggingFaceTokenizer:
    if kind == "prefix":
        return train(add_prefix_space=True)
    tokenizer = train(alphabet=kind != "alphabet", end=None if kind == "no end" else "</s>")
    if kind == "normalizer":
        tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("prefix", "document 1"),
        ("normalizer", "document 1"),
        ("alphabet", "256 bytes"),
        ("no end", "end-of-document"),
    ],
)
def test_a_tokenizer_that_loses_text_is_refused(kind: str, message: str, tmp_path: Path) -> None:
    file = save(lossy(kind), tmp_path)
    with pytest.raises(ParibusError, match=message):
        ids_of(tokenizer_of(Data(tokenizer=str(file)), "", True, tmp_path), ["The", "fox ~ </s>"])


def test_a_trained_tokenizer_has_its_size_and_loses_nothing(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": TEXT}) + "\n" for _ in range(3)))
    data = Data(corpus="jsonl", path="a.jsonl", column="body", seq_len=16, tokenizer="t.json")
    for name in ("t.json", "u.json"):
        train_tokenizer(data, tmp_path, 300, tmp_path / name)
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "u.json").read_bytes()
    read = BpeTokenizer.read(tmp_path / "t.json")
    assert read.vocab_size == 300
    assert read.decode(read.encode(TEXT + "never seen: ñ 🦊")) == TEXT + "never seen: ñ 🦊"
    assert load_dataset(data, tmp_path).n_documents == 3


def test_the_study_that_names_it_trains_it(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    data = {"corpus": "text", "path": "text.txt", "seq_len": 16, "vocab_size": 280}
    table = {
        "name": "own-tokens",
        "seeds": [1],
        "data": data | {"tokenizer": "t.json"},
        "training": {"iterations": 30},
        "arms": {"baseline": {}, "small": {"set": {"data.vocab_size": 270}}},
    }
    table["arms"]["small"]["set"]["data.tokenizer"] = "u.json"
    study = parse_study(table, folder=tmp_path)
    datasets = read_data(study)
    sizes = [datasets[study.setting(arm).data].vocab_size for arm in study.arms]
    assert sizes == [280, 270]
    before = (tmp_path / "t.json").read_bytes()
    read_data(study)
    assert (tmp_path / "t.json").read_bytes() == before
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json", ".txt"]
