"""Arrays of token ids, in memory or memory-mapped from the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from paribus.digests import digest

Tokens = np.ndarray  # [n]

HASHED_TOKENS = 2**24
"""Maximum number of tokens per hash; longer texts have a digest of several hashes."""
CHUNK_TOKENS = 2**20  # read at a time by what goes through a whole text


def chunks(tokens: Tokens, size: int = CHUNK_TOKENS, overlap: int = 0) -> Iterator[np.ndarray]:
    """Yield `tokens` in chunks of `size`, each extended by up to `overlap` following tokens."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size + overlap]


def windows(tokens: Tokens, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the windows of `length` tokens that begin at `starts` [W], as [W, length]."""
    return tokens[starts[:, None] + np.arange(length)]


def hash_ids(ids: np.ndarray) -> str:
    """Return the SHA-256 digest of token ids, encoded as little-endian 32-bit integers."""
    return hashlib.sha256(ids.astype("<u4").data).hexdigest()


def tokens_digest(tokens: Tokens) -> str:
    """Return the SHA-256 digest of `tokens`.

    For more than HASHED_TOKENS tokens, it is computed from a list of hashes, one for each chunk of
    that size.
    """
    if len(tokens) <= HASHED_TOKENS:
        return hash_ids(tokens)
    return digest(list(map(hash_ids, chunks(tokens, HASHED_TOKENS))))
