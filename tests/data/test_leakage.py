"""Containment against a search of strings."""

import numpy as np
import pytest

from paribus.engine.data import duplicates
from paribus.engine.data.duplicates import RUN_TOKENS, in_training


@pytest.fixture
def runs_of(monkeypatch):
    """Set how many tokens a run has."""
    return lambda length: monkeypatch.setattr(duplicates, "RUN_TOKENS", length)


def ids(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint16)


def test_runs_by_hand(runs_of):
    train, validation = ids("a short document"), ids("in it a short one, and document")
    runs_of(8)
    found = in_training(train, [validation])
    assert "".join("x" if hit else "." for hit in found) == "......xxxxxxxx........xxxxxxxxx"
    runs_of(9)
    found = in_training(train, [validation])
    assert np.flatnonzero(found).tolist() == list(range(22, 31))  # " document" alone


@pytest.mark.parametrize("seed", range(20))
def test_containment_matches_a_search_of_strings(seed, runs_of):
    runs_of(6)
    rng = np.random.default_rng(seed)
    train, validation = ("".join(rng.choice(list("abc"), size=n)) for n in (300, 200))
    expected = np.zeros(200, bool)
    for start in range(200 - 5):
        if validation[start : start + 6] in train:
            expected[start : start + 6] = True
    assert 0 < expected.sum() < 200
    assert (in_training(ids(train), [ids(validation)]) == expected).all()


def test_a_copy_leaks_whole_and_other_text_not_at_all():
    text = np.random.default_rng(1).integers(60_000, size=500).astype(np.uint16)
    assert in_training(text, [text[100:200]]).all()
    assert not in_training(text[:250], [text[250:]]).any()
    changed = text[100:200].copy()
    changed[RUN_TOKENS] += 1  # a run before it, and one token too few after it
    expected = np.arange(100) < RUN_TOKENS
    assert (in_training(text, [changed]) == expected).all()


@pytest.mark.parametrize(("n_train", "n_validation"), [(49, 500), (500, 49), (0, 3), (3, 0)])
def test_a_text_shorter_than_a_run_holds_none(n_train, n_validation):
    found = in_training(np.zeros(n_train, np.uint16), [np.zeros(n_validation, np.uint16)])
    assert found.shape == (n_validation,)
    assert not found.any()


def test_no_run_is_of_two_blocks():
    text = np.random.default_rng(1).integers(60_000, size=1000).astype(np.uint16)
    blocks = [text[100:130], text[130:200], text[300:320]]  # 30, 70 and 20 tokens
    found = in_training(text, blocks)
    assert found.tolist() == [False] * 30 + [True] * 70 + [False] * 20
    assert in_training(text, [np.concatenate(blocks[:2])]).all()
