"""What a trial really consumed: targets by token class, and how often it saw the training text.

Computed after the fact from the streams that the batches themselves come from, so that nothing is
counted while training and nothing can be counted differently from what was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paribus.engine.data.mixture import Mixture
from paribus.engine.data.order import Windows
from paribus.engine.data.token_classes import TOKEN_CLASSES
from paribus.engine.data.tokens import CHUNK_TOKENS, Tokens, chunks
from paribus.study import CORPUS


@dataclass(frozen=True)
class Consumption:
    """What the windows of a trial held. A token is seen when it is a target.

    Attributes:
        targets: [5] targets by token class, in the order of TOKEN_CLASSES, int64.
        times_seen: [K + 1] how many training tokens were seen k = 0, 1, ..., K times, where K is
            the most that any was; int64. They add up to all training tokens: the first token of
            the split, which no window can have as a target, is among those never seen.
        by_token: [V] of each source how often each token was a target, int64; of a single text
            there is one source, `corpus`.
        windows: of each source, how many windows were of it.
    """

    targets: np.ndarray
    times_seen: np.ndarray
    by_token: dict[str, np.ndarray]
    windows: dict[str, int]

    def sources(self, bytes_per_token: np.ndarray) -> dict[str, dict[str, int]]:
        """Windows, targets and the UTF-8 bytes of these, by source; [V] bytes of each token."""
        return {
            name: {
                "windows": self.windows[name],
                "tokens": int(counts.sum()),
                "bytes": int(counts @ bytes_per_token),
            }
            for name, counts in self.by_token.items()
        }


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
    windows: Windows | Mixture | None = None,
) -> Consumption:
    """What `iterations` batches of `seed` take from the training `tokens` [n_train].

    `classes` [V] is the class of every token id, from `token_classes`; `windows` are those of the
    dataset, by default drawn from anywhere. A pure function of its
    arguments, equal for every arm of a seed. A trial that diverged consumed all its batches too.
    Memory grows with the windows that were drawn, not with the text; text that no window touches is
    not read.
    """
    order = windows or Windows(len(tokens), seq_len)
    drawn = [order.starts(seed, t, batch_size, iterations) for t in range(iterations)]
    starts = np.sort(np.concatenate(drawn)) if drawn else np.zeros(0, np.int64)
    times_seen = np.zeros(1, np.int64)
    by_token: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for name, first, last in _ranges(order, len(tokens)):
        by_token[name] = np.zeros(len(classes), np.int64)
        inside = starts[slice(*np.searchsorted(starts, [first, last]))]
        counts[name] = len(inside)
        for begin in range(first, last, CHUNK_TOKENS):
            size = min(CHUNK_TOKENS, last - begin)
            seen = _coverage(inside, begin, size, seq_len)
            times = np.bincount(seen)
            times_seen = np.pad(times_seen, (0, max(len(times) - len(times_seen), 0)))
            times_seen[: len(times)] += times
            if len(times) > 1:
                # Sums of floats, exact below 2^53 targets.
                found = np.bincount(tokens[begin : begin + size], seen, minlength=len(classes))
                by_token[name] += found.astype(np.int64)
    targets = _by_class(np.sum(list(by_token.values()), axis=0), classes)
    return Consumption(targets, times_seen, by_token, counts)


def _ranges(order: Windows | Mixture, n: int) -> list[tuple[str, int, int]]:
    """(name, where it begins, where it ends) of every source in `n` training tokens."""
    if isinstance(order, Windows):
        return [(CORPUS, 0, n)]
    edges = [*order.offsets.values(), n]
    return list(zip(order.offsets, edges, edges[1:], strict=False))


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
