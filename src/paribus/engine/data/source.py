"""A text to be tokenized: what is found out of it in one pass, and its tokens in a second one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from paribus.digests import digest
from paribus.engine.data import cache
from paribus.engine.data.cache import sharded
from paribus.engine.data.corpora import SOURCE_KEYS, find_corpus, read_pieces
from paribus.engine.data.pieces import Piece
from paribus.engine.data.reading_progress import note
from paribus.engine.data.tokenizer import Tokenizer
from paribus.engine.data.tokens import Tokens, in_order
from paribus.engine.setting import Data
from paribus.errors import ParibusError

SMALL_BYTES = 2 * 2**20
"""A text of no more UTF-8 bytes is tokenized in memory by everyone who needs it."""

CODE_POINTS = 0x110000


@dataclass(frozen=True)
class Scan:
    """The findings of one pass over a text.

    Attributes:
        digest: SHA-256 of its bytes; of several documents, of the list of their digests.
        n_documents: documents that have any text.
        n_bytes: UTF-8 bytes.
        n_characters: characters.
        characters: every character, in code-point order.
        pieces: the text itself where it is small, else None.
    """

    digest: str
    n_documents: int
    n_bytes: int
    n_characters: int
    characters: str
    pieces: tuple[Piece, ...] | None = field(default=None, repr=False)

    @property
    def about(self) -> dict[str, Any]:
        """All that it holds but the text itself."""
        return {name: value for name, value in vars(self).items() if name != "pieces"}


@dataclass(frozen=True)
class Source:
    """The text that `data` names, or a part of it; `folder` is where its relative paths start.

    Attributes:
        span: the part's first place and the one after its last, as `part_of` counts them.
        kept: the whole text where it is in memory already.
        sha256: of the whole text, where it was read before: another text is refused.
    """

    data: Data
    folder: Path
    span: tuple[int, int] | None = None
    kept: tuple[Piece, ...] | None = field(default=None, repr=False)
    sha256: str | None = None

    def whole(self, doing: str = "reading") -> Iterator[Piece]:
        """Yield every piece of the whole text; `doing` is what is said meanwhile."""
        if self.kept is not None:
            return iter(self.kept)
        found = read_pieces(self.data, self.folder)
        return found if self.sha256 is None else self._unchanged(found, doing)

    def pieces(self) -> Iterator[Piece]:
        """Its documents in order, long ones in pieces. Raises ParibusError if it cannot be read."""
        return self.within(self.whole())

    def within(self, whole: Iterable[Piece]) -> Iterator[Piece]:
        """Yield those pieces of `whole` that are in this part; all of `whole` is gone through."""
        return part_of(whole, *self.span) if self.span else iter(whole)

    def known(self, found: Scan) -> Source:
        """Return this text, of which `found` is known by now."""
        return replace(self, kept=found.pieces, sha256=found.digest)

    def part(self, found: Scan, start: int, stop: int) -> Source:
        """Places `start` to `stop` of this text, of which `found` is known."""
        return replace(self.known(found), span=(start, stop))

    def scan(self) -> Scan:
        """Read the text once, unless its files are as they were when it was read before."""
        key = self._key()
        if key is not None and (found := cache.recall(key)):
            try:
                return Scan(**found)
            except TypeError:
                pass  # of another version
        # Of a text that is too long for memory, a part is no exception.
        found = scan(self.pieces(), keep=self.span is None or self.kept is not None)
        _require_characters(self.data.corpus, found.characters)
        if key is not None and found.pieces is None and key == self._key():
            cache.keep(key, found.about)
        return found

    def _unchanged(self, whole: Iterable[Piece], doing: str) -> Iterator[Piece]:
        """Yield `whole`. Raises ParibusError at its end where it is not the text read before."""
        document, documents, n_bytes = hashlib.sha256(), _ListDigest(), 0
        for piece in whole:
            content = piece.text.encode("utf-8", "surrogatepass")
            document.update(content)
            n_bytes += len(content)
            if piece.is_last:
                documents.add(document.hexdigest())
                document = hashlib.sha256()
            yield piece
            note(doing, n_bytes)
        if documents.value != self.sha256:
            raise ParibusError(
                f"the text of corpus '{self.data.corpus}' changed while it was read; leave its "
                "files as they are, and run again"
            )

    def _key(self) -> str | None:
        """Return what decides the text, as a digest; None where only reading it can tell."""
        if self.kept is not None:
            return None
        corpus = find_corpus(self.data, self.folder)
        about: dict[str, Any] = {"scan": 3, "corpus": self.data.corpus, "span": self.span}
        about |= {name: getattr(self.data, name) for name in SOURCE_KEYS}
        if ":" in self.data.corpus or corpus.files is None:
            return None
        files = cache.signature(corpus.files(self.data, self.folder))
        return None if files is None else digest(about | {"files": files})


def _require_characters(corpus: str, characters: str) -> None:
    """Raise ParibusError where half of a surrogate pair is among `characters`: it has no UTF-8."""
    halves = [character for character in characters if "\ud800" <= character <= "\udfff"]
    if halves:
        raise ParibusError(
            f"the text of corpus '{corpus}' has half of a surrogate pair "
            f"(\\u{ord(halves[0]):04x}), which is no character; correct the text"
        )


def part_of(whole: Iterable[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Places `start` to `stop` of a text: each character is one, and so is the end of a document.

    That is how a character tokenizer counts tokens where there are several documents; of a single
    text, the end is behind the last place. A document that is cut has no end in the first part; the
    end itself goes with what is before it. All of `whole` is gone through.
    """
    at = 0
    for piece in whole:
        first, last = max(start - at, 0), min(stop - at, len(piece.text))
        if first < last:
            ends = piece.is_last and last == len(piece.text)
            yield Piece(piece.text[first:last], piece.document, ends)
        at += len(piece.text) + piece.is_last


def scan(pieces: Iterable[Piece], *, keep: bool = True) -> Scan:
    """Return what `pieces` hold; with `keep` they are kept as long as they are few.

    A last document without its end counts as one.
    """
    kept: list[Piece] | None = [] if keep else None
    document, documents = hashlib.sha256(), _ListDigest()
    seen = _Characters()
    n_bytes = n_characters = 0
    is_open = False
    for piece in pieces:
        content = piece.text.encode("utf-8", "surrogatepass")
        document.update(content)
        n_bytes += len(content)
        n_characters += len(piece.text)
        is_open = not piece.is_last
        seen.add(content)
        if piece.is_last:
            documents.add(document.hexdigest())
            document = hashlib.sha256()
        if kept is not None:
            kept.append(piece)
            if n_bytes > SMALL_BYTES:
                kept = None
        note("reading", n_bytes)
    if is_open:
        documents.add(document.hexdigest())
    return Scan(
        documents.value,
        documents.length,
        n_bytes,
        n_characters,
        seen.all,
        None if kept is None else tuple(kept),
    )


class _Characters:
    """Every character of a text."""

    def __init__(self) -> None:
        self._seen = np.zeros(CODE_POINTS, bool)
        self._plain = b""  # ASCII characters that were seen

    def add(self, content: bytes) -> None:
        """Return those of a text in UTF-8."""
        # What is left when the usual characters are deleted is short, and still UTF-8.
        if rest := content.translate(None, self._plain):
            text = rest.decode("utf-8", "surrogatepass")
            self._seen[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)] = True
            self._plain = bytes(np.flatnonzero(self._seen[:128]).tolist())

    @property
    def all(self) -> str:
        """In code-point order."""
        return "".join(map(chr, np.flatnonzero(self._seen)))


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
    """Yield the token ids of a text: in memory where it is small, else in shards of the cache.

    `found` is what is known of the whole text, of which `source` may be a part.
    With `ends`, each document is closed by its end-of-document token. Raises ParibusError where the
    tokenizer does not know a character or loses text.
    """
    if found.pieces is not None:
        none = np.zeros(0, tokenizer.dtype)
        return np.concatenate([none, *encoded(source.within(found.pieces), tokenizer, ends)])
    about: dict[str, Any] = {
        "corpus": found.digest,
        "span": list(source.span or ()),
        "tokenizer": tokenizer.digest,
        "ends_of_document": ends,
    }

    def make() -> Iterator[np.ndarray]:
        whole = source.known(found).whole("tokenizing")
        yield from encoded(source.within(whole), tokenizer, ends)

    return sharded(about, make, np.dtype(tokenizer.dtype))


def encoded(pieces: Iterable[Piece], tokenizer: Tokenizer, ends: bool) -> Iterator[np.ndarray]:
    """Yield the ids of each piece, by all cores, in their order."""
    end = np.array([tokenizer.end_of_document] if ends else [], tokenizer.dtype)
    cores = os.cpu_count() or 1

    def encode(piece: Piece) -> np.ndarray:
        ids = tokenizer.encode_checked(piece.text, f"document {piece.document + 1}")
        return np.concatenate([ids, end]) if piece.is_last else ids

    with ThreadPoolExecutor(cores) as pool:
        yield from in_order(pool, encode, ((piece,) for piece in pieces), ahead=2 * cores)
