"""Texts with cached digests, counts and tokens."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from paribus.engine.data.cache import cached_tokens, remembered, signature
from paribus.engine.data.corpora import SOURCE_KEYS, find_corpus, read_pieces
from paribus.engine.data.pieces import Piece
from paribus.engine.data.tokenizer import Tokenizer
from paribus.engine.data.tokens import Tokens
from paribus.engine.setting import Data


@dataclass(frozen=True)
class Scan:
    """Digest and counts of a text, computed in one pass."""

    digest: str  # SHA-256 of the bytes; for several documents, of the list of their digests
    n_documents: int  # nonempty documents, including a last one that is cut off
    n_bytes: int  # UTF-8 bytes
    n_characters: int  # characters
    characters: str  # every character, in code-point order

    @property
    def places(self) -> int:
        """Number of positions in the text (see `Text.part`)."""
        return self.n_characters + (self.n_documents if self.n_documents > 1 else 0)


@dataclass(frozen=True)
class Text:
    """Text that can be read repeatedly."""

    identity: dict[str, Any]  # JSON values that determine the text
    read: Callable[[], Iterable[Piece]]  # reads the pieces of the text
    known: Scan | None = None  # digest and counts, if already computed

    @cached_property
    def scan(self) -> Scan:
        """Digest and counts of the text, read from the cache or computed in one pass."""
        if self.known is not None:
            return self.known
        return Scan(**remembered({"scan": 4} | self.identity, lambda: asdict(scan(self.read()))))

    def tokens(self, tokenizer: Tokenizer, ends: bool) -> tuple[Tokens, str]:
        """Return the token ids of the text, and their digest.

        Args:
            tokenizer: tokenizer that encodes the text.
            ends: whether an end-of-document token follows each document.

        Raises ParibusError if decoding the tokens does not restore the text.
        """
        identity = self.identity | {"tokenizer": tokenizer.digest, "ends_of_document": ends}
        dtype = np.dtype(tokenizer.dtype)
        return cached_tokens(identity, lambda: encoded(self.read(), tokenizer, ends), dtype)

    def part(self, start: int, stop: int) -> Text:
        """Return the slice of the text from position `start` to `stop`.

        Positions count characters and document ends, like the tokens of a character tokenizer. If
        the text is a single document, its end is not counted.
        """
        identity = self.identity | {"span": [start, stop]}
        return Text(identity, lambda: _between(self.read(), start, stop))


def _between(pieces: Iterable[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Yield the pieces of a text from position `start` to `stop`; see `Text.part`.

    If the slice ends inside a document, its last piece has `is_last=False`. A document end is in
    the slice if the document's last character is. All `pieces` are consumed.
    """
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), min(stop - at, len(piece.text))
        if first < last:
            ends = piece.is_last and last == len(piece.text)
            yield Piece(piece.text[first:last], piece.document, ends)
        at += len(piece.text) + piece.is_last


def read_text(data: Data, folder: Path) -> Text:
    """Return the text of the corpus specified by `data`, with its digest and counts.

    The digest and counts are cached until the files change. Relative paths are resolved against
    `folder`. Raises ParibusError if the text cannot be read.
    """
    corpus = find_corpus(data, folder)

    def scanned() -> dict[str, Any]:
        return asdict(scan(read_pieces(data, folder)))

    if corpus.files is None:  # only reading it can tell
        result = Scan(**scanned())
    else:
        identity = {name: getattr(data, name) for name in ("corpus", *SOURCE_KEYS)}
        identity |= {"scan": 4, "files": signature(corpus.files(data, folder))}
        result = Scan(**remembered(identity, scanned))
    return Text({"corpus": result.digest}, lambda: read_pieces(data, folder), result)


def scan(pieces: Iterable[Piece]) -> Scan:
    """Compute the digest and counts of the text in `pieces`.

    The digest of a single document is the hash of its bytes. The digest of several documents equals
    `digests.digest` of the list of their digests, which is not kept in memory.
    """
    listed, characters, value = hashlib.sha256(b"["), set[str](), ""
    n_documents = n_bytes = n_characters = 0
    for _, parts in groupby(pieces, key=lambda piece: piece.document):
        document = hashlib.sha256()
        for piece in parts:
            content = piece.text.encode()
            document.update(content)
            n_bytes += len(content)
            n_characters += len(piece.text)
            characters.update(piece.text)
        value = document.hexdigest()
        listed.update(f'{"," if n_documents else ""}\n  "{value}"'.encode())
        n_documents += 1
    listed.update(b"\n]\n")
    sha256 = value if n_documents == 1 else listed.hexdigest()
    return Scan(sha256, n_documents, n_bytes, n_characters, "".join(sorted(characters)))


def encoded(pieces: Iterable[Piece], tokenizer: Tokenizer, ends: bool) -> Iterator[np.ndarray]:
    """Yield the token ids of each piece in order, encoding pieces in parallel threads.

    With `ends`, an end-of-document token follows each document.
    """
    end = np.array([tokenizer.end_of_document] if ends else [], tokenizer.dtype)
    cores = os.cpu_count() or 1

    def encode(piece: Piece) -> np.ndarray:
        ids = tokenizer.encode_checked(piece.text, f"document {piece.document + 1}")
        return np.concatenate([ids, end]) if piece.is_last else ids

    waiting = iter(pieces)
    with ThreadPoolExecutor(cores) as pool:
        while group := list(islice(waiting, 4 * cores)):
            yield from pool.map(encode, group)
