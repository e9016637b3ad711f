"""Arrays of token ids, in memory or memory-mapped from the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

Tokens = np.ndarray  # [n]

CHUNK_TOKENS = 2**20  # read at a time by what goes through a whole text


def chunks(tokens: Tokens, size: int = CHUNK_TOKENS, overlap: int = 0) -> Iterator[np.ndarray]:
    """Yield `tokens` in chunks of `size`, each extended by up to `overlap` following tokens."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size + overlap]


def windows(tokens: Tokens, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the windows of `length` tokens that begin at `starts` [W], as [W, length]."""
    return tokens[starts[:, None] + np.arange(length)]


def tokens_digest(tokens: Tokens) -> str:
    """Return the SHA-256 of token ids, encoded as little-endian 32-bit integers."""
    total = hashlib.sha256()
    for ids in chunks(tokens):
        total.update(ids.astype("<u4").data)
    return total.hexdigest()
