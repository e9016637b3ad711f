"""What a trial really consumed: targets by token class, and how often it saw the training text.

Computed after the fact from the streams that the batches themselves come from, so that nothing is
counted while training and nothing can be counted differently from what was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paribus.data.batches import window_starts
from paribus.data.token_classes import TOKEN_CLASSES


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


def class_counts(tokens: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """[5] how many of `tokens` are of each class; `classes` [V] is `token_classes`' answer."""
    return _by_class(np.bincount(tokens, minlength=len(classes)), classes)


def consumption(
    tokens: np.ndarray,
    classes: np.ndarray,
    seed: int,
    iterations: int,
    batch_size: int,
    seq_len: int,
) -> Consumption:
    """What `iterations` batches of `seed` take from the training `tokens` [n_train].

    `classes` [V] is the class of every token id, from `token_classes`. A pure function of its
    arguments, equal for every arm of a seed. A trial that diverged consumed all its batches too.
    """
    starts = np.zeros(len(tokens), np.int64)  # windows that start at each position
    for t in range(iterations):
        np.add.at(starts, window_starts(len(tokens), seed, t, batch_size, seq_len), 1)
    # A window that starts at s has the targets s + 1 ... s + seq_len: it opens after s, and closes
    # after s + seq_len. No window closes beyond the end, since none starts within seq_len of it.
    change = np.zeros(len(tokens), np.int64)
    change[1:] += starts[:-1]
    change[seq_len + 1 :] -= starts[: -seq_len - 1]
    seen = np.cumsum(change)
    # Sums of floats, exact below 2^53 targets.
    by_token = np.bincount(tokens, weights=seen, minlength=len(classes)).astype(np.int64)
    return Consumption(_by_class(by_token, classes), np.bincount(seen))


def _by_class(by_token: np.ndarray, classes: np.ndarray) -> np.ndarray:
    counts = np.bincount(classes, weights=by_token, minlength=len(TOKEN_CLASSES))
    return counts.astype(np.int64)
