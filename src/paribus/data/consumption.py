"""What a trial really consumed: targets by token class, and how often it saw the training text.

Computed after the fact from the streams that the batches themselves come from, so that nothing is
counted while training and nothing can be counted differently from what was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paribus.data.order import Windows
from paribus.data.token_classes import TOKEN_CLASSES
from paribus.data.tokens import CHUNK_TOKENS, Tokens, chunks


@dataclass(frozen=True)
class Consumption:
    """What the windows of a trial held. A token is seen when it is a target.

    Attributes:
        targets: [5] targets by token class, in the order of TOKEN_CLASSES, int64.
        times_seen: [K + 1] how many training tokens were seen k = 0, 1, ..., K times, where K is
            the most that any was; int64. They add up to all training tokens: the first token of
            the split, which no window can have as a target, is among those never seen.
    """

    targets: np.ndarray
    times_seen: np.ndarray


def class_counts(tokens: Tokens, classes: np.ndarray) -> np.ndarray:
    """[5] how many of `tokens` are of each class; `classes` [V] is `token_classes`' answer."""
    by_token = np.zeros(len(classes), np.int64)
    for ids in chunks(tokens):
        by_token += np.bincount(ids, minlength=len(classes))
    return _by_class(by_token, classes)


def consumption(
    tokens: Tokens,
    classes: np.ndarray,
    seed: int,
    iterations: int,
    batch_size: int,
    seq_len: int,
    windows: Windows | None = None,
) -> Consumption:
    """What `iterations` batches of `seed` take from the training `tokens` [n_train].

    `classes` [V] is the class of every token id, from `token_classes`; `windows` are those of the
    dataset, by default drawn from anywhere. A pure function of its
    arguments, equal for every arm of a seed. A trial that diverged consumed all its batches too.
    Memory grows with the windows that were drawn, not with the text; text that no window touches is
    not read.
    """
    n, order = len(tokens), windows or Windows(len(tokens), seq_len)
    drawn = [order.starts(seed, t, batch_size) for t in range(iterations)]
    starts = np.sort(np.concatenate(drawn)) if drawn else np.zeros(0, np.int64)
    by_token = np.zeros(len(classes), np.int64)
    times_seen = np.zeros(1, np.int64)
    for begin in range(0, n, CHUNK_TOKENS):
        size = min(CHUNK_TOKENS, n - begin)
        seen = _coverage(starts, begin, size, seq_len)
        times = np.bincount(seen)
        times_seen = np.pad(times_seen, (0, max(len(times) - len(times_seen), 0)))
        times_seen[: len(times)] += times
        if len(times) > 1:
            # Sums of floats, exact below 2^53 targets.
            found = np.bincount(tokens[begin : begin + size], seen, minlength=len(classes))
            by_token += found.astype(np.int64)
    return Consumption(_by_class(by_token, classes), times_seen)


def _coverage(starts: np.ndarray, begin: int, size: int, seq_len: int) -> np.ndarray:
    """[size] how many windows have each token from `begin` on as a target; `starts` are sorted.

    A window that starts at s has the targets s + 1 ... s + seq_len.
    """
    first, last = np.searchsorted(starts, [begin - seq_len, begin + size - 1])
    opened = starts[first:last] + 1 - begin
    change = np.bincount(opened.clip(min=0), minlength=size + 1)[: size + 1]
    closed = opened + seq_len
    change -= np.bincount(closed[closed < size], minlength=size + 1)
    return np.cumsum(change[:size])


def _by_class(by_token: np.ndarray, classes: np.ndarray) -> np.ndarray:
    counts = np.bincount(classes, weights=by_token, minlength=len(TOKEN_CLASSES))
    return counts.astype(np.int64)
