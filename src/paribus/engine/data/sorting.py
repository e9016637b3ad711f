"""A text with its documents in the order of a curriculum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from paribus.engine.data.curricula import find_key
from paribus.engine.data.order import ends_of
from paribus.engine.data.shards import sharded
from paribus.engine.data.tokenizer import Tokenizer
from paribus.engine.data.tokens import CHUNK_TOKENS, ShardedTokens, Tokens
from paribus.errors import ParibusError


def by_curriculum(
    tokens: Tokens, tokenizer: Tokenizer, name: str, folder: Path, about: dict[str, object]
) -> Tokens:
    """The documents of `tokens`, sorted by the key `name`; of equal ones the earlier comes first.

    A last document without an end stays the last. In shards where `tokens` are; `about` says what
    they are. Memory grows with the number of documents, and with the longest one. Raises
    ParibusError for a text that is a single document.
    """
    end = tokenizer.end_of_document
    if end is None:
        raise ParibusError(
            "data.order = 'curriculum' sorts documents, and the text is a single one; use another "
            "order"
        )
    key = find_key(name, folder)
    edges = np.array([0, *ends_of(tokens, end)], np.int64)
    values = [key(tokenizer.decode(_text(tokens, a, b, end))) for a, b in pairwise(edges.tolist())]
    if len(tokens) and int(tokens[len(tokens) - 1]) != end:
        values[-1] = np.inf
    order = np.argsort(values, kind="stable")

    def make() -> Iterator[np.ndarray]:
        for document in order.tolist():
            start, stop = int(edges[document]), int(edges[document + 1])
            for at in range(start, stop, CHUNK_TOKENS):
                yield tokens[at : min(at + CHUNK_TOKENS, stop)]

    if not isinstance(tokens, ShardedTokens):
        return np.concatenate(list(make()))
    # An own key may be another function under the same name: its answers decide.
    content = np.asarray(order, "<u8").tobytes()
    named = about | {"curriculum": hashlib.sha256(content).hexdigest()}
    return sharded(named, make, tokens.dtype)


def _text(tokens: Tokens, start: int, stop: int, end: int) -> np.ndarray:
    """The ids of a document without its end."""
    ids = tokens[start:stop]
    return ids[:-1] if len(ids) and ids[-1] == end else ids
