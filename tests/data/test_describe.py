"""The tables of a corpus: by hand on a small one, and what they show of the shipped ones."""

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.engine.data import (
    Windows,
    batch,
    consumption,
    describe_data,
    load_dataset,
    token_classes,
)
from paribus.engine.setting import Data

HERE = Path()


def sentence(seed: int, n: int = 120) -> str:
    """Random letters: nothing in it is found in another."""
    return "".join(np.random.default_rng(seed).choice(list("abcdefghijklmnop"), size=n))


def write(folder: Path, *documents: str) -> Data:
    for i, document in enumerate(documents):
        (folder / f"{i}.txt").write_text(document, encoding="utf-8")
    return Data(corpus="text", path=".", seq_len=8, validation_fraction=0.5)


def test_a_corpus_by_hand(tmp_path):
    """Documents of 121, 364, 121 and 242 tokens with their ends: 848, cut in the second."""
    data = write(
        tmp_path,
        sentence(0),
        "\n\n".join([sentence(1), sentence(2, n=119), sentence(0)]),
        sentence(0),
        f"{sentence(2, n=119)}\n\n{sentence(3)}",
    )
    table = describe_data(load_dataset(data, tmp_path))
    assert table["token_classes"]["corpus"] == {
        "alphabetic": 120 * 5 + 119 * 2,
        "numeric": 0,
        "punctuation": 0,
        "whitespace": 6,
        "end-of-document": 4,
    }
    # 848 tokens: the cut at 424 is in the last passage of the second document.
    assert sum(table["token_classes"]["train"].values()) == 424
    assert table["token_classes"]["validation"]["end-of-document"] == 3
    assert table["duplicates"]["document"] == {
        "units": 5,
        "exact": 1,
        "near": 1,
        "validation_units": 3,
        "leaked_exact": 1,
        "leaked_near": 1,
    }
    assert table["duplicates"]["passage"] == {
        "units": 6,  # and two parts of one that the split cuts, which are too short
        "exact": 2,
        "near": 2,
        "validation_units": 3,
        "leaked_exact": 2,
        "leaked_near": 2,
    }
    # What the cut left of the second document, with its end; the third, with its end; and the
    # passage that the second document has too, with its blank line.
    leakage = {"validation_tokens": 424, "in_training": 60 + 1 + 121 + 119 + 2}
    assert table["leakage"] == leakage


def test_a_large_text_is_described_as_a_small_one(tmp_path, monkeypatch):
    data = write(tmp_path, sentence(0), sentence(1, n=2000), sentence(0), sentence(1))
    small = load_dataset(data, tmp_path)
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("paribus.engine.data.source.SMALL_BYTES", 0)
    large = load_dataset(data, tmp_path)
    assert isinstance(large.train, np.memmap)
    assert describe_data(large) == describe_data(small)
    assert consumption(large, 3, 20, 2, 8) == consumption(small, 3, 20, 2, 8)


def test_shakespeare_has_no_duplicates():
    if "PARIBUS_DATA" not in os.environ:
        pytest.skip("PARIBUS_DATA does not name a folder with the text")
    data = Data(corpus="shakespeare")
    table = describe_data(load_dataset(data, HERE))
    assert table["token_classes"]["corpus"]["numeric"] == 27
    assert table["duplicates"]["passage"]["near"] == 0
    assert table["leakage"] == {"validation_tokens": 111_540, "in_training": 0}


# Consumption against naive counting of the batches themselves.


def text(tokens: np.ndarray, classes: np.ndarray, seq_len: int) -> Any:
    """A training text whose tokens have a byte each."""
    tokenizer = SimpleNamespace(bytes_per_token=np.ones(len(classes), np.int64))
    windows = Windows(len(tokens), seq_len)
    return SimpleNamespace(
        train=tokens, token_classes=classes, windows=windows, tokenizer=tokenizer
    )


def test_one_window_that_fits_exactly():
    """The only start is 0: every token but the first is seen once in each of six windows."""
    tokens = np.array([0, 1, 1, 2, 3], np.uint16)  # " ", "a", "a", "7", "." by their classes
    classes = token_classes([" ", "a", "7", "."], None)
    assert consumption(text(tokens, classes, 4), 1, 3, 2, 4) == {
        "token_classes": {
            "alphabetic": 12,
            "numeric": 6,
            "punctuation": 6,
            "whitespace": 0,
            "end-of-document": 0,
        },
        "times_seen": [1, 0, 0, 0, 0, 0, 4],
        "sources": {"corpus": {"windows": 6, "tokens": 24, "bytes": 24}},
    }


@pytest.mark.parametrize("seed", [0, 1, 7, 10**9])
@pytest.mark.parametrize(("batch_size", "seq_len"), [(1, 1), (4, 16), (3, 98), (2, 99)])
def test_consumption_matches_counting_the_batches(seed, batch_size, seq_len):
    positions = np.arange(100, dtype=np.uint16)
    classes = np.random.default_rng(seed).integers(5, size=100)
    seen: Counter[int] = Counter()
    for t in range(20):
        seen.update(batch(positions, seed, t, batch_size, seq_len)[:, 1:].ravel().tolist())
    times = Counter(seen[position] for position in range(100))
    targets = Counter(int(classes[token]) for token in seen.elements())

    used = consumption(text(positions, classes, seq_len), seed, 20, batch_size, seq_len)
    assert used["times_seen"] == [times[k] for k in range(max(times) + 1)]
    assert list(used["token_classes"].values()) == [targets[c] for c in range(5)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    iterations=st.integers(0, 30),
    batch_size=st.integers(1, 8),
    seq_len=st.integers(1, 40),
    spare=st.integers(1, 50),
)
def test_budget_sums(seed, iterations, batch_size, seq_len, spare):
    tokens = np.random.default_rng(seed).integers(7, size=seq_len + spare).astype(np.uint16)
    classes = np.array([0, 1, 2, 3, 4, 0, 0])
    used = consumption(text(tokens, classes, seq_len), seed, iterations, batch_size, seq_len)
    budget = iterations * batch_size * seq_len
    assert sum(used["times_seen"]) == len(tokens)
    assert sum(k * n for k, n in enumerate(used["times_seen"])) == budget
    assert sum(used["token_classes"].values()) == budget
