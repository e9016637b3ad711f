"""Corpora, tokens, split and batches: known answers first."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from paribus.engine.data import (
    FIRST_DIGEST,
    TOKEN_CLASSES,
    CharacterTokenizer,
    batch,
    extend_digest,
    load_dataset,
)
from paribus.engine.data.corpora import published
from paribus.engine.data.tokenizer import token_classes
from paribus.engine.setting import Data

from ..tools import refused

HERE = Path()


def test_tokens_by_hand():
    tokenizer = CharacterTokenizer.from_text("bac", ends=True)
    assert tokenizer.vocabulary == ["a", "b", "c", "<|endofdocument|>"]
    assert tokenizer.encode("bac").tolist() == [1, 0, 2]
    assert tokenizer.decode([1, 0, 3]) == "ba<|endofdocument|>"
    assert CharacterTokenizer.from_text("ba").end_of_document is None


@given(st.text(min_size=1))
def test_decoding_undoes_encoding_in_any_script(text):
    tokenizer = CharacterTokenizer.from_text(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == len(set(text))


def test_shakespeare_is_nanogpt_s(monkeypatch):
    """65 characters and 1,003,854 training tokens: nanoGPT's data/shakespeare_char/prepare.py."""
    if "PARIBUS_DATA" not in os.environ:
        pytest.skip("PARIBUS_DATA does not name a folder with the text")
    data = load_dataset(Data(corpus="shakespeare"), HERE)
    assert data.vocab_size == 65
    assert (len(data.train), len(data.validation)) == (1_003_854, 111_540)
    assert data.digests["corpus"] == published.SHAKESPEARE_SHA256
    # "First Citizen" in the ids of nanoGPT's meta.pkl
    assert data.train[:13].tolist() == [18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 43, 52]


def test_shakespeare_is_checked(monkeypatch, tmp_path):
    monkeypatch.setenv("PARIBUS_DATA", str(tmp_path))
    with refused("value", match=r"tinyshakespeare/input\.txt"):
        load_dataset(Data(corpus="shakespeare"), HERE)
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("To be")
    with refused("value", match="SHA-256"):
        load_dataset(Data(corpus="shakespeare"), HERE)


def test_a_download_is_cached_and_checked(monkeypatch, tmp_path):
    source = tmp_path / "source.txt"
    source.write_text("To be, or not to be")
    monkeypatch.delenv("PARIBUS_DATA", raising=False)
    monkeypatch.delenv("PARIBUS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published, "SHAKESPEARE_URL", "http://127.0.0.1:9/none")  # nobody listens
    with refused("value", match="PARIBUS_DATA=<folder>"):
        published.shakespeare.function(Data(), HERE)
    monkeypatch.setattr(published, "SHAKESPEARE_URL", source.as_uri())
    with refused("value", match="SHA-256"):
        published.shakespeare.function(Data(), HERE)
    assert not (tmp_path / "cache").exists()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setattr(published, "SHAKESPEARE_SHA256", digest)
    assert published.shakespeare.function(Data(), HERE) == ["To be, or not to be"]
    source.unlink()
    assert published.shakespeare.function(Data(), HERE) == ["To be, or not to be"]


def test_a_batch_is_a_pure_function_of_seed_and_step():
    tokens = np.arange(1000, dtype=np.uint16)
    later = batch(tokens, 7, 5, 4, 16)
    for t in range(5):
        batch(tokens, 7, t, 4, 16)
    np.random.default_rng(0).random(10)
    again = batch(tokens, 7, 5, 4, 16)
    assert (later == again).all()
    assert later.shape == (4, 17)
    assert (np.diff(later, axis=1) == 1).all()  # contiguous windows
    others = [batch(tokens, 7, 6, 4, 16), batch(tokens, 8, 5, 4, 16)]
    assert all((other != later).any() for other in others)


def test_the_batches_of_a_seed_stay_what_they_were():
    """Digests of batches are in every record: other bytes would be another experiment."""
    tokens = np.arange(1000, dtype=np.uint16)
    running = FIRST_DIGEST
    for t in range(20):
        running = extend_digest(running, batch(tokens, 3, t, 4, 16))
    assert running == "4861f1e15a3fc500d082d302aa1b1667cf348e1132dafb27aa811fd91a6d4f38"
    assert batch(tokens, 3, 19, 4, 16)[:, 0].tolist() == [160, 768, 724, 485]


# Token classes: characters of any script, and BPE tokens by their decoded text.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "alphabetic"),
        ("語", "alphabetic"),
        ("7", "numeric"),
        (".", "punctuation"),
        ("\n", "whitespace"),
        (" the", "alphabetic"),
        ("4th", "alphabetic"),
        (" ,", "punctuation"),
        ("\ufffd", "punctuation"),
    ],
)
def test_the_class_of_a_text(text, expected):
    assert TOKEN_CLASSES[token_classes([text], None)[0]] == expected
