"""The order of windows: an epoch is a permutation, packing keeps the budget, nothing leaks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from paribus.engine.data import batch, consumption, load_dataset
from paribus.engine.data.order import Windows, document_places, permuted
from paribus.engine.setting import Data


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 100, 1000, 65_537])
def test_an_epoch_visits_every_window_once(n):
    for seed, epoch in ((0, 0), (1, 0), (1, 1)):
        assert np.sort(permuted(np.arange(n), n, seed, epoch)).tolist() == list(range(n))


@given(st.integers(1, 10**12), st.integers(0, 2**40), st.integers(0, 5))
def test_no_two_places_of_a_vast_text_meet(n, seed, epoch):
    places = np.unique(np.linspace(0, n - 1, 50).astype(np.int64))
    found = permuted(places, n, seed, epoch)
    assert len(np.unique(found)) == len(places)
    assert found.min() >= 0 and found.max() < n
    assert (permuted(places[::-1].copy(), n, seed, epoch) == found[::-1]).all()


@given(st.integers(1, 20), st.integers(1, 300), st.integers(1, 7), st.integers(0, 9))
def test_every_target_is_met_once_an_epoch(seq_len, more, size, seed):
    n = seq_len + more
    windows = Windows(n, seq_len, "epoch")
    steps = -(-2 * len(windows) // size)
    starts = np.concatenate([windows.starts(seed, t, size) for t in range(steps)])
    for epoch in range(2):
        of_epoch = starts[epoch * len(windows) : (epoch + 1) * len(windows)]
        targets = (of_epoch[:, None] + 1 + np.arange(seq_len)).ravel()
        assert np.sort(targets).tolist() == list(range(1, len(windows) * seq_len + 1))
    assert windows.starts(seed, 3, size).tolist() == starts[3 * size : 4 * size].tolist() or (
        steps < 4
    )


END = 0


def text_of(lengths: list[int]) -> np.ndarray:
    """Documents of so many tokens each, their ends included."""
    return np.concatenate([[*range(1, n), END] for n in lengths]).astype(np.uint16)


def test_documents_by_hand():
    # At 0, 3, 5, 15, 18; 23 tokens.
    tokens = text_of([3, 2, 10, 3, 5])
    found = document_places(tokens, END, 5)
    # From 0: the first two are whole. From 5: ten tokens, continued at 10. From 10: the end of the
    # long one at 15. The fourth is whole in the window that begins with it, the last one ends it.
    assert found.tolist() == [0, 5, 10, 15, 17]


@given(st.lists(st.integers(1, 30), min_size=2, max_size=30), st.integers(1, 12))
def test_short_documents_are_whole_in_a_window(lengths, seq_len):
    tokens = text_of(lengths)
    if len(tokens) < seq_len + 1:
        return
    found = document_places(tokens, END, seq_len).astype(np.int64)
    assert (np.diff(found) > 0).all()
    assert found[-1] <= len(tokens) - seq_len - 1
    edges = np.cumsum([0, *lengths])
    for start, end in pairwise(edges.tolist()):
        if end - start <= seq_len + 1:
            whole = (found <= start) & (found + seq_len + 1 >= end)
            assert whole.any(), (start, end, found)
    covered = np.zeros(len(tokens), bool)
    for start in found:
        covered[start : start + seq_len + 1] = True
    assert covered.all()
    # No window but the last begins inside a document that would fit.
    for start in found[:-1]:
        document = np.searchsorted(edges, start, "right") - 1
        assert start == edges[document] or lengths[document] > seq_len + 1


@pytest.mark.parametrize("order", ["sampled", "epoch"])
@pytest.mark.parametrize("pack", ["stream", "documents"])
def test_the_budget_is_met_exactly(order, pack, tmp_path):
    rng = np.random.default_rng(1)
    for i in range(40):
        text = "".join(rng.choice(list("abc 12.\n"), size=int(rng.integers(3, 200))))
        (tmp_path / f"{i:02}.txt").write_text(text)
    data = Data(corpus="text", path=".", seq_len=16, order=order, pack=pack)
    dataset = load_dataset(data, tmp_path)
    rows = [batch(dataset.train, 5, t, 3, 16, dataset.windows)[:, 1:] for t in range(37)]
    size = int(dataset.tokenizer.bytes_per_token[np.concatenate(rows)].sum())
    used = {"windows": 37 * 3, "tokens": 37 * 3 * 16, "bytes": size}
    assert consumption(dataset, 5, 37, 3, 16) == {"sources": {"corpus": used}}
