"""Curricula: what documents are sorted by, behind one decorator, and a text in that order.

A key is a pure function of a document's text to a number; the least comes first. A file put into
this folder is found by itself, and the user's own is named by its import path.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from paribus.declared import declared
from paribus.engine.data.cache import sharded
from paribus.engine.data.order import ends_of
from paribus.engine.data.tokenizer import Tokenizer
from paribus.engine.data.tokens import CHUNK_TOKENS, ShardedTokens, Tokens
from paribus.errors import ParibusError, blamed
from paribus.study.choices import require_declared
from paribus.study.importing import function_or, load_own

ASKED_TWICE = 16  # documents for which a key must give one number


@dataclass(frozen=True)
class CurriculumKey:
    """A key and what it declares.

    Attributes:
        name: the value of `data.curriculum`.
        about: what it is, and what comes first.
        of: from the text of a document to a number.
    """

    name: str
    about: str
    of: Callable[[str], float]


def curriculum_key(
    name: str, *, about: str = ""
) -> Callable[[Callable[[str], float]], CurriculumKey]:
    """Make the decorated function the key `name`."""
    return lambda of: CurriculumKey(name, about, of)


@cache
def all_keys() -> dict[str, CurriculumKey]:
    """Return every key of this folder, by name."""
    return declared(__name__, CurriculumKey)


def find_key(name: str, folder: Path) -> Callable[[str], float]:
    """Return the key `name`, checked as it is used; files of the user's own start at `folder`.

    Raises ParibusError for an unknown one, and where it fails or gives no finite number.
    """
    if ":" in name:
        wanted = function_or(CurriculumKey)
        found = load_own(name, f"data.curriculum = '{name}'", "curriculum key", wanted, folder)
        of = found.of if isinstance(found, CurriculumKey) else found
    else:
        of = require_declared(name, all_keys(), "data.curriculum", "curriculum key", __name__).of

    def checked(text: str) -> float:
        with blamed(f"data.curriculum = '{name}' fails"):
            value = float(of(text))
        if not math.isfinite(value):
            raise ParibusError(
                f"data.curriculum = '{name}' gives {value} for a document of {len(text):,} "
                "characters; documents are sorted by finite numbers"
            )
        return value

    return checked


def by_curriculum(
    tokens: Tokens, tokenizer: Tokenizer, name: str, folder: Path, about: dict[str, object]
) -> Tokens:
    """Sort the documents of `tokens` by the key `name`; of equal ones the earlier comes first.

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
    edges = [0, *ends_of(tokens, end)]
    values = []
    for start, stop in pairwise(edges):
        ids = tokens[start:stop]
        text = tokenizer.decode(ids[:-1] if len(ids) and ids[-1] == end else ids)
        values.append(key(text))
        if len(values) <= ASKED_TWICE and key(text) != values[-1]:
            raise ParibusError(
                f"data.curriculum = '{name}' gives another number when it is asked again for the "
                f"same document of {len(text):,} characters; it must follow from the text alone"
            )
    if len(tokens) and int(tokens[len(tokens) - 1]) != end:
        values[-1] = np.inf
    order = np.argsort(values, kind="stable")

    def make() -> Iterator[np.ndarray]:
        for document in order.tolist():
            stop = edges[document + 1]
            for at in range(edges[document], stop, CHUNK_TOKENS):
                yield tokens[at : min(at + CHUNK_TOKENS, stop)]

    if not isinstance(tokens, ShardedTokens):
        return np.concatenate(list(make()))
    # An own key may be another function under the same name: its answers decide.
    content = np.asarray(order, "<u8").tobytes()
    named = about | {"curriculum": hashlib.sha256(content).hexdigest()}
    return sharded(named, make, tokens.dtype)
