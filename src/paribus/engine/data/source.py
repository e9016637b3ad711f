"""A text to be tokenized: what one pass over it finds, and its tokens from a second pass."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paribus.engine.data.cache import cached_tokens, remembered, signature
from paribus.engine.data.corpora import SOURCE_KEYS, find_corpus, read_pieces
from paribus.engine.data.pieces import Piece
from paribus.engine.data.tokenizer import Tokenizer
from paribus.engine.data.tokens import Tokens
from paribus.engine.setting import Data
from paribus.errors import ParibusError


@dataclass(frozen=True)
class Scan:
    """The findings of one pass over a text."""

    digest: str  # SHA-256 of its bytes; of several documents, of the list of their digests
    n_documents: int  # documents that have any text; a last one that is cut off counts
    n_bytes: int  # UTF-8 bytes
    n_characters: int  # characters
    characters: str  # every character, in code-point order

    @property
    def places(self) -> int:
        """The places of `Text.part`."""
        return self.n_characters + (self.n_documents if self.n_documents > 1 else 0)


@dataclass(frozen=True)
class Text:
    """A text that can be read again."""

    identity: dict[str, Any]  # whatever decides the text
    read: Callable[[], Iterable[Piece]]  # reads its pieces

    def scan(self) -> Scan:
        """Go through the text once, unless that was done before."""
        known = remembered({"scan": 4} | self.identity, lambda: asdict(scan(self.read())))
        return Scan(**known)

    def tokens(self, tokenizer: Tokenizer, ends: bool) -> tuple[Tokens, str]:
        """Return token ids and their digest. With `ends`, each document is closed by its
        end-of-document token. Raises ParibusError where the tokenizer loses text."""
        identity = self.identity | {"tokenizer": tokenizer.digest, "ends_of_document": ends}
        dtype = np.dtype(tokenizer.dtype)
        return cached_tokens(identity, lambda: encoded(self.read(), tokenizer, ends), dtype)

    def part(self, start: int, stop: int) -> Text:
        """Return the places `start` to `stop`: each character is one, and each end of a document.

        That is how a character tokenizer counts tokens where there are several documents; of a
        single text, the end is behind the last place.
        """
        identity = self.identity | {"span": [start, stop]}
        return Text(identity, lambda: _between(self.read(), start, stop))


def _between(pieces: Iterable[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Yield the places `start` to `stop` of a text; see `Text.part`.

    A document that is cut has no end in the first part; the end itself goes with what is before it.
    All of `pieces` is gone through.
    """
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), min(stop - at, len(piece.text))
        if first < last:
            ends = piece.is_last and last == len(piece.text)
            yield Piece(piece.text[first:last], piece.document, ends)
        at += len(piece.text) + piece.is_last


def read_text(data: Data, folder: Path) -> tuple[Text, Scan]:
    """Return the text that `data` names; `folder` is where its relative paths start.

    It is not gone through if its files are as they were when that was done before. Raises
    ParibusError where it cannot be read.
    """
    corpus, known = find_corpus(data, folder), partial(_scanned, data, folder)
    if corpus.files is None:  # only reading it can tell
        result = Scan(**known())
    else:
        identity = {name: getattr(data, name) for name in ("corpus", *SOURCE_KEYS)}
        identity |= {"scan": 4, "files": signature(corpus.files(data, folder))}
        result = Scan(**remembered(identity, known))
    return Text({"corpus": result.digest}, lambda: _unchanged(data, folder, result)), result


def _scanned(data: Data, folder: Path) -> dict[str, Any]:
    return asdict(scan(read_pieces(data, folder)))


def _unchanged(data: Data, folder: Path, known: Scan) -> Iterator[Piece]:
    """Yield the text again. Raises ParibusError at its end where it is not the one scanned."""
    running = _TextDigest()
    for piece in read_pieces(data, folder):
        running.add(piece)
        yield piece
    if running.finish() != known.digest:
        raise ParibusError(
            f"the text of corpus '{data.corpus}' changed while it was read; leave its files as "
            "they are, and run again",
            code="changed",
        )


def scan(pieces: Iterable[Piece]) -> Scan:
    """Go through `pieces` and return what they hold."""
    running, characters, known = _TextDigest(), set[str](), b""
    n_characters = 0
    for piece in pieces:
        content = running.add(piece)
        n_characters += len(piece.text)
        # What is left when the ASCII characters that were seen are deleted is short.
        if new := content.translate(None, known):
            characters.update(new.decode())
            known = "".join(filter(str.isascii, characters)).encode()
    sha256, seen = running.finish(), "".join(sorted(characters))
    return Scan(sha256, running.n_documents, running.n_bytes, n_characters, seen)


class _TextDigest:
    """SHA-256 of a text, piece by piece: of its bytes; of several documents, of the list of their
    digests as `digests.digest` has it, without the list."""

    def __init__(self) -> None:
        self.n_bytes = self.n_documents = 0
        self._first = ""
        self._documents = hashlib.sha256(b"[")
        self._document = hashlib.sha256()
        self._is_open = False

    def add(self, piece: Piece) -> bytes:
        """Add the next piece; return its bytes."""
        content = piece.text.encode()
        self._document.update(content)
        self.n_bytes += len(content)
        self._is_open = not piece.is_last
        if piece.is_last:
            self._close()
        return content

    def _close(self) -> None:
        value = self._document.hexdigest()
        self._first = self._first or value
        self._documents.update(f'{"," if self.n_documents else ""}\n  "{value}"'.encode())
        self.n_documents += 1
        self._document = hashlib.sha256()

    def finish(self) -> str:
        """Return the digest."""
        if self._is_open:
            self._close()
        if self.n_documents == 1:
            return self._first
        self._documents.update(b"\n]\n")
        return self._documents.hexdigest()


def encoded(pieces: Iterable[Piece], tokenizer: Tokenizer, ends: bool) -> Iterator[np.ndarray]:
    """Yield the ids of each piece, by all cores, in their order."""
    end = np.array([tokenizer.end_of_document] if ends else [], tokenizer.dtype)
    cores = os.cpu_count() or 1

    def encode(piece: Piece) -> np.ndarray:
        ids = tokenizer.encode_checked(piece.text, f"document {piece.document + 1}")
        return np.concatenate([ids, end]) if piece.is_last else ids

    waiting: deque[Future[np.ndarray]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for piece in pieces:
            waiting.append(pool.submit(encode, piece))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
