"""Token ids of a text, [n]: an array in memory, or a memory-mapped file of the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from paribus.digests import digest

Tokens = np.ndarray  # [n]

HASHED_TOKENS = 2**24
"""Tokens of which a digest is one hash; a text of no more has the digest of its ids."""
CHUNK_TOKENS = 2**20  # read at a time by what goes through a whole text


def chunks(tokens: Tokens, size: int = CHUNK_TOKENS, overlap: int = 0) -> Iterator[np.ndarray]:
    """Yield `tokens` in arrays of at most `size`, each with up to `overlap` tokens of the next."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size + overlap]


def windows(tokens: Tokens, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the windows [W, length] that begin at `starts` [W]."""
    return tokens[starts[:, None] + np.arange(length)]


def hash_ids(ids: np.ndarray) -> str:
    """Return the SHA-256 of token ids, as little-endian integers of 32 bits."""
    return hashlib.sha256(ids.astype("<u4").data).hexdigest()


def tokens_digest(tokens: Tokens) -> str:
    """Return the hash of `tokens`; for long texts, a digest of hashes of HASHED_TOKENS each."""
    if len(tokens) <= HASHED_TOKENS:
        return hash_ids(tokens)
    return digest(list(map(hash_ids, chunks(tokens, HASHED_TOKENS))))
