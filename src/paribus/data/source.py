"""A text to be tokenized: what is found out of it in one pass, and its tokens in a second one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paribus.data import cache
from paribus.data.corpora import SOURCE_KEYS, find_corpus, read_pieces
from paribus.data.pieces import Piece
from paribus.data.reading_progress import note
from paribus.data.shards import in_order, sharded
from paribus.data.tokenizer import Tokenizer
from paribus.data.tokens import Tokens
from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.study import Data

SMALL_BYTES = 2 * 2**20
"""A text of no more UTF-8 bytes is tokenized in memory by everyone who needs it."""

CODE_POINTS = 0x110000


@dataclass(frozen=True)
class Scan:
    """What one pass over a text found.

    Attributes:
        digest: SHA-256 of its bytes; of several documents, of the list of their digests.
        n_documents: documents that have any text.
        n_bytes: UTF-8 bytes.
        characters: every character, in code-point order.
        pieces: the text itself where it is small, else None.
    """

    digest: str
    n_documents: int
    n_bytes: int
    characters: str
    pieces: tuple[Piece, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Source:
    """The text that `data` names; `folder` is where its relative paths start."""

    data: Data
    folder: Path

    def pieces(self) -> Iterator[Piece]:
        """Its documents in order, long ones in pieces. Raises ParibusError if it cannot be read."""
        return read_pieces(self.data, self.folder)

    def scan(self) -> Scan:
        """Read the text once, unless its files are as they were when it was read before."""
        key = self._key()
        if key is not None and (found := cache.recall(key)):
            try:
                return Scan(**found)
            except TypeError:
                pass  # of another version
        found = scan(self.pieces())
        if key is not None and found.pieces is None and key == self._key():
            facts = {name: value for name, value in vars(found).items() if name != "pieces"}
            cache.keep(key, facts)
        return found

    def _key(self) -> str | None:
        """What decides the text, as a digest; None where only reading it can tell."""
        corpus = find_corpus(self.data, self.folder)
        about: dict[str, Any] = {"scan": 1, "corpus": self.data.corpus}
        about |= {name: getattr(self.data, name) for name in SOURCE_KEYS}
        if ":" in self.data.corpus or corpus.files is None:
            return None
        files = cache.signature(corpus.files(self.data, self.folder))
        return None if files is None else digest(about | {"files": files})


def scan(pieces: Iterable[Piece]) -> Scan:
    """What `pieces` hold; they are kept as long as they are few."""
    kept: list[Piece] | None = []
    document, documents = hashlib.sha256(), _ListDigest()
    seen = np.zeros(CODE_POINTS, bool)
    n_bytes = 0
    for piece in pieces:
        content = piece.text.encode("utf-8", "surrogatepass")
        document.update(content)
        n_bytes += len(content)
        seen[np.frombuffer(piece.text.encode("utf-32-le", "surrogatepass"), np.uint32)] = True
        if piece.is_last:
            documents.add(document.hexdigest())
            document = hashlib.sha256()
        if kept is not None:
            kept.append(piece)
            if n_bytes > SMALL_BYTES:
                kept = None
        note("reading", n_bytes)
    characters = "".join(map(chr, np.flatnonzero(seen)))
    return Scan(
        documents.value,
        documents.length,
        n_bytes,
        characters,
        None if kept is None else tuple(kept),
    )


class _ListDigest:
    """The digest of a list of digests, as `canonical.digest` gives it, without the list."""

    def __init__(self) -> None:
        self.length = 0
        self._first = ""
        self._running = hashlib.sha256(b"[")

    def add(self, value: str) -> None:
        self._first = self._first or value
        self._running.update(f'{"," if self.length else ""}\n  "{value}"'.encode())
        self.length += 1

    @property
    def value(self) -> str:
        """Of one digest, that digest itself."""
        if self.length == 1:
            return self._first
        whole = self._running.copy()
        whole.update(b"\n]\n")
        return whole.hexdigest()


def tokenized(source: Source, found: Scan, tokenizer: Tokenizer, ends: bool) -> Tokens:
    """The token ids of a text: in memory where it is small, else in shards of the cache.

    With `ends`, each document is closed by its end-of-document token. Raises ParibusError where the
    tokenizer does not know a character or loses text.
    """
    if found.pieces is not None:
        return np.concatenate(list(encoded(found.pieces, tokenizer, ends)))
    about = {"corpus": found.digest, "tokenizer": tokenizer.digest, "ends_of_document": ends}

    def make() -> Iterator[np.ndarray]:
        again = _Recounted(source.pieces())
        yield from encoded(again, tokenizer, ends)
        if again.digest != found.digest:
            raise ParibusError(
                f"the text of corpus '{source.data.corpus}' changed while it was read; leave its "
                "files as they are, and run again"
            )

    return sharded(about, make, np.dtype(tokenizer.dtype))


def encoded(pieces: Iterable[Piece], tokenizer: Tokenizer, ends: bool) -> Iterator[np.ndarray]:
    """The ids of each piece, by all cores, in their order."""
    end = np.array([tokenizer.end_of_document] if ends else [], tokenizer.dtype)
    cores = os.cpu_count() or 1

    def encode(piece: Piece) -> np.ndarray:
        ids = tokenizer.encode_checked(piece.text, f"document {piece.document + 1}")
        return np.concatenate([ids, end]) if piece.is_last else ids

    with ThreadPoolExecutor(cores) as pool:
        yield from in_order(pool, encode, ((piece,) for piece in pieces), ahead=2 * cores)


class _Recounted:
    """Pieces as they pass by, and their digest afterwards."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = pieces
        self.digest = ""

    def __iter__(self) -> Iterator[Piece]:
        document, documents, n_bytes = hashlib.sha256(), _ListDigest(), 0
        for piece in self._pieces:
            content = piece.text.encode("utf-8", "surrogatepass")
            document.update(content)
            n_bytes += len(content)
            if piece.is_last:
                documents.add(document.hexdigest())
                document = hashlib.sha256()
            yield piece
            note("tokenizing", n_bytes)
        self.digest = documents.value
