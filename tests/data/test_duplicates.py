"""Duplicates against similarities known by construction, and against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from paribus.engine.data import duplicates
from paribus.engine.data.duplicates import (
    RUN_TOKENS,
    count_in_training,
    count_near,
    passages,
)


def noise(rng: np.random.Generator, n: int) -> str:
    """Of 20,000 ideographs, so that no run of 9 comes twice."""
    return "".join(map(chr, rng.integers(0x4E00, 0x9C00, size=n)))


def pair(rng: np.random.Generator, n: int, shared: int) -> tuple[str, str]:
    """Two texts of `n` shingles each that share `shared`: Jaccard shared / (2 n - shared)."""
    prefix = noise(rng, shared + 8)
    return prefix + noise(rng, n - shared), prefix + noise(rng, n - shared)


@pytest.mark.parametrize(("shared", "near"), [(400, 0), (700, 0), (960, 1), (1000, 1)])
def test_known_similarities(shared, near):
    """Jaccard similarities of 0.25, 0.54, 0.92 and 1, which sketches of 120 hashes tell apart."""
    a, b = pair(np.random.default_rng(1), 1000, shared)
    assert count_near([a], [b]) == near


@pytest.mark.parametrize(
    ("training", "validation", "near"),
    [
        ([], [], 0),
        (["one"], [], 0),
        (["same"] * 3, ["same"] * 2, 2),
        (["", " ", "ab"], ["cd"], 0),
        (["The  quick\nbrown fox jumps. " * 3], ["THE QUICK BROWN FOX JUMPS. " * 3], 1),
    ],
)
def test_near_duplicates_by_hand(training, validation, near):
    assert count_near(training, validation) == near


def test_passages_by_hand():
    a, b, c = "a" * 100, "b" * 60 + "\n" + "b" * 60, "c" * 120
    document = f"{a}\r\n \t\r\n\n  {b}\n\nshort\n\n\n{c}\n"
    assert passages(document) == [a, b, c]
    assert passages("") == passages("\n\n \n") == passages("x" * 99) == []


# Containment against a search of strings.


@pytest.fixture
def runs_of(monkeypatch):
    """Set how many tokens a run has."""
    return lambda length: monkeypatch.setattr(duplicates, "RUN_TOKENS", length)


def ids(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint16)


def test_runs_by_hand(runs_of):
    train, validation = ids("a short document"), ids("in it a short one, and document")
    runs_of(8)
    assert count_in_training(train, validation) == len(" a short") + len(" document")
    runs_of(9)
    assert count_in_training(train, validation) == len(" document")


@pytest.mark.parametrize("seed", range(5))
def test_containment_matches_a_search_of_strings(seed, runs_of, monkeypatch):
    runs_of(6)
    if seed % 2:  # as in a long text
        monkeypatch.setattr(duplicates, "CHUNK_TOKENS", 64)
    rng = np.random.default_rng(seed)
    train, validation = ("".join(rng.choice(list("abc"), size=n)) for n in (300, 200))
    expected = np.zeros(200, bool)
    for start in range(200 - 5):
        if validation[start : start + 6] in train:
            expected[start : start + 6] = True
    assert 0 < expected.sum() < 200
    assert count_in_training(ids(train), ids(validation)) == expected.sum()


def test_a_copy_leaks_whole_and_other_text_not_at_all():
    text = np.random.default_rng(1).integers(60_000, size=500).astype(np.uint16)
    assert count_in_training(text, text[100:200]) == 100
    assert count_in_training(text[:250], text[250:]) == 0
    changed = text[100:200].copy()
    changed[RUN_TOKENS] += 1  # a run before it, and one token too few after it
    assert count_in_training(text, changed) == RUN_TOKENS
    assert count_in_training(np.zeros(49, np.uint16), np.zeros(500, np.uint16)) == 0
