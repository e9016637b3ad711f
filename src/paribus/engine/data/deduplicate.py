"""Taking out what a text repeats, and from the training text all that the held-out text has too.

Done once for a text, which is read once. What is kept of it waits beside memory (`Spool`); hashes
of passages are kept, with `near` their sketches, and where they stand.

1. Documents and passages that repeat an earlier one go: with `exact` those of the same characters,
   with `near` also those whose shingles have a Jaccard similarity of NEAR_DUPLICATE_JACCARD or more
   with an earlier one (see `duplicates`); with `held-out` none.
2. The text is split, at the end of a line.
3. From the training text go the lines that hold any run of RUN_TOKENS bytes of the held-out text. A
   token is a byte at least, so no run of as many tokens is left in both, for any tokenizer."""

from __future__ import annotations

import codecs
import hashlib
import mmap
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import IO

import numpy as np

from paribus.engine.data.duplicates import (
    RUN_TOKENS,
    Runs,
    near_duplicate_pairs,
    normalized,
    segments,
)
from paribus.engine.data.pieces import Document, Piece, pieces
from paribus.errors import ParibusError
from paribus.files import cache_folder

# The end of a document, among bytes of UTF-8, which has no such byte.
END = b"\xff"
MEMORY_BYTES = 2**21  # more of them stand in a file without a name, in the folder of the cache
COPY_BYTES = 2**20


def encode(text: str) -> bytes:
    """UTF-8, of lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")


class Spool:
    """Bytes that are written in order, and then read at any place; `length` of them."""

    def __init__(self) -> None:
        self.length = 0
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None
        self._view: bytes | mmap.mmap | None = None

    def write(self, content: bytes) -> None:
        """Add `content`. Raises ParibusError where the cache cannot be written."""
        self.length += len(content)
        self._buffer += content
        if len(self._buffer) > MEMORY_BYTES:
            self._flush()

    def _flush(self) -> None:
        folder = cache_folder()
        try:
            if self._file is None:
                folder.mkdir(parents=True, exist_ok=True)
                # It goes with this. A buffer of its own would be written where nobody expects it.
                self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            left = memoryview(self._buffer)
            while left:  # a disk that is nearly full takes a part
                left = left[self._file.write(left) :]
        except OSError as error:
            raise ParibusError(
                f"cannot write the cache {folder}: {error.strerror}; set PARIBUS_CACHE to a "
                "folder that can be written"
            ) from None
        self._buffer = bytearray()

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def truncate(self, length: int) -> None:
        """Take back what was written after the first `length` bytes."""
        excess = self.length - length
        if excess <= len(self._buffer):
            del self._buffer[len(self._buffer) - excess :]
        else:
            assert self._file is not None
            self._buffer = bytearray()
            self._file.seek(length)
            self._file.truncate()
        self.length = length

    def view(self) -> bytes | mmap.mmap:
        """Return all of it; nothing is written any more."""
        if self._view is None:
            if self._file is None or self.length == 0:  # an empty file cannot be mapped
                self._view = bytes(self._buffer)
            else:
                self._flush()
                self._view = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
                self._file.close()
        return self._view


@dataclass(frozen=True)
class Part:
    """Documents between two places of a spool; the last one may go on elsewhere.

    Gone through, it gives their pieces, as often as it is asked.
    """

    spool: Spool
    start: int
    stop: int

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Part:
        """Return all of `documents`."""
        spool = Spool()
        for document in documents:
            before = spool.length
            for text in (document,) if isinstance(document, str) else document:
                spool.write(encode(text))
            if spool.length > before:
                spool.write(END)
        return cls(spool, 0, spool.length)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def is_open(self) -> bool:
        """True where its last document goes on elsewhere."""
        return self.stop > self.start and self.spool.view()[self.stop - 1] != END[0]

    @property
    def bytes(self) -> np.ndarray:
        """[n] of all its documents with their ends, not in memory where they are many, uint8."""
        return np.frombuffer(self.spool.view(), np.uint8)[self.start : self.stop]

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, some at a time."""
        view = self.spool.view()
        for start in range(self.start, self.stop, COPY_BYTES):
            yield view[start : min(start + COPY_BYTES, self.stop)]

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of its text, without the ends of documents."""
        return len(self) - sum(chunk.count(END) for chunk in self.chunks())

    def __iter__(self) -> Iterator[Piece]:
        is_open = self.is_open
        before = None
        for piece in pieces(self._documents()):
            if before:
                yield before
            before = piece
        if before:
            yield before._replace(is_last=False) if is_open else before

    def _documents(self) -> Iterator[Iterator[str]]:
        view, at = self.spool.view(), self.start
        while at < self.stop:
            end = view.find(END, at, self.stop)
            end = self.stop if end < 0 else end
            yield _decoded(view, at, end)
            at = end + 1


def _decoded(view: bytes | mmap.mmap, start: int, stop: int) -> Iterator[str]:
    # The incremental decoder cuts no character; lone surrogates are three bytes like others.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    for at in range(start, stop, COPY_BYTES):
        end = min(at + COPY_BYTES, stop)
        yield decoder.decode(view[at:end], final=end == stop)


LONGEST_LINE = 1000  # bytes; of a longer one, words go


@dataclass(frozen=True)
class Parts:
    """A text that was deduplicated and split, and what was taken out.

    Attributes:
        train, validation, test: the parts; the last document of train may go on in validation.
        rates: counts, for a reader to divide: documents, passages and bytes, in all and dropped as
            repetitions; bytes of the training text, and those that were cut out of it because the
            held-out text has them too.
    """

    train: Part
    validation: Part
    test: Part
    rates: dict[str, int] = field(default_factory=dict)


def deduplicated(
    documents: Iterable[Document], mode: str, validation: Part | float, test: Part | float
) -> Parts:
    """Return `documents` split, with nothing of the held-out parts in training.

    `mode` is `held-out`, `exact` or `near`; `validation` and `test` are texts of their own, which
    stay as they are, or the share of the text that is kept for them. `documents` are gone through
    once; memory grows with the number of passages, and with the longest one.
    """
    if mode == "held-out":
        kept = Part.of(documents)
        rates = {"bytes": kept.n_bytes}
    else:
        kept, rates = _without_repetitions(documents, near=mode == "near")
    total = _characters(kept)
    rest = kept
    held: dict[str, Part] = {}
    for name, own in (("test", test), ("validation", validation)):
        if isinstance(own, float | int):
            rest, held[name] = _split(rest, round(total * own))
        else:
            held[name] = own
    train, dropped = _without_runs(rest, list(held.values()))
    rates |= {"train_bytes": rest.n_bytes, "train_bytes_cut": dropped}
    return Parts(train, held["validation"], held["test"], rates)


def documents_of(found: Iterable[Piece]) -> Iterator[Iterator[str]]:
    """Yield the documents that `found` are the pieces of; each is gone through before the next."""
    for _, of_one in groupby(found, key=lambda piece: piece.document):
        yield (piece.text for piece in of_one)


@dataclass(frozen=True)
class _Passages(Sequence[str]):
    """Passages in a spool, each read when it is asked for, in the form in which it is compared.

    Attributes:
        which: [n] the segments of the text that they are.
        stops: [segments + 1] where each segment begins, and the last one ends.
    """

    text: Spool
    which: Sequence[int]
    stops: Sequence[int]
    form: Callable[[str], str]

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        at = self.which[i]
        content = self.text.view()[self.stops[at] : self.stops[at + 1]]
        return self.form(content.decode("utf-8", "surrogatepass"))


def _without_repetitions(documents: Iterable[Document], near: bool) -> tuple[Part, dict[str, int]]:
    """Return `documents` without those, and without the passages, that repeat an earlier one.

    With `near` also without passages that nearly do. Of what was seen 128-bit hashes are kept: two
    texts have one by chance in 1 of 10^20 corpora of 10^9 passages.
    """
    text, stops, ends, which = Spool(), array("q", [0]), array("q"), array("q")
    whole: set[bytes] = set()
    n_documents = n_bytes = 0
    for document in documents:
        first, n_passages, found = len(stops), len(which), hashlib.blake2b(digest_size=16)
        for segment, is_passage in segments(document):
            if is_passage:
                which.append(len(stops) - 1)
            content = encode(segment)
            found.update(content)
            text.write(content)
            stops.append(text.length)
        n_documents += 1
        n_bytes += text.length - stops[first - 1]
        if _is_new(found.digest(), whole):
            ends.append(len(stops) - 1)
        else:
            del stops[first:], which[n_passages:]
            text.truncate(stops[-1])
    repeated = _repeated(_Passages(text, which, stops, normalized if near else str.strip), near)
    gone = bytearray(len(stops))
    for i, is_gone in zip(which, repeated.tolist(), strict=True):
        gone[i] = is_gone
    kept, start, n_kept, view = Spool(), 0, 0, text.view()
    for end in ends:
        before, has_text = kept.length, False
        for i in range(start, end):
            if not gone[i]:
                content = view[stops[i] : stops[i + 1]]
                kept.write(content)
                has_text = has_text or bool(content.decode("utf-8", "surrogatepass").strip())
        if has_text:
            kept.write(END)
            n_kept += 1
        else:
            kept.truncate(before)
        start = end
    part = Part(kept, 0, kept.length)
    return part, {
        "documents": n_documents,
        "documents_dropped": n_documents - n_kept,
        "passages": len(which),
        "passages_dropped": int(repeated.sum()),
        "bytes": n_bytes,
        "bytes_dropped": n_bytes - part.n_bytes,
    }


def _repeated(passages: _Passages, near: bool) -> np.ndarray:
    """Return [n] whether each passage repeats an earlier one, or with `near` nearly, bool."""
    seen: set[bytes] = set()
    hashes = (hashlib.blake2b(encode(text), digest_size=16).digest() for text in passages)
    found = np.array([not _is_new(one, seen) for one in hashes], bool)
    if near:
        distinct = np.flatnonzero(~found)
        which = [passages.which[i] for i in distinct.tolist()]
        # The later one of a pair goes; a chain of pairs leaves its first.
        pairs = near_duplicate_pairs(replace(passages, which=which))
        found[distinct[pairs[:, 1]]] = True
    return found


def _is_new(key: bytes, seen: set[bytes]) -> bool:
    """Return whether nothing earlier had this hash; from now on it has."""
    is_new = key not in seen
    seen.add(key)
    return is_new


def _characters(part: Part) -> int:
    """Count characters; the ends of documents are none."""
    n = sum(_begin_characters(chunk).sum() for chunk in part.chunks())
    return int(n) - (len(part) - part.n_bytes)


def _begin_characters(content: bytes) -> np.ndarray:
    """Return [n] whether a character begins at each byte."""
    return (np.frombuffer(content, np.uint8) & 0xC0) != 0x80


def _place(document: Part, k: int) -> int:
    """Return where character `k` of a document begins in its spool."""
    at = document.start
    for chunk in document.chunks():
        begins = np.flatnonzero(_begin_characters(chunk))
        if k < len(begins):
            return at + int(begins[k])
        k, at = k - len(begins), at + len(chunk)
    return document.stop


def _split(text: Part, wanted: int) -> tuple[Part, Part]:
    """Return the first documents, and the last ones with `wanted` characters.

    One is cut in two, at the end of a line where it has one there, so `wanted` may be missed by a
    line.
    """
    spool, at = text.spool, text.stop
    view = spool.view()
    while at > text.start and wanted:
        end = at - (view[at - 1] == END[0])
        document = Part(spool, max(view.rfind(END, text.start, end) + 1, text.start), end)
        n = _characters(document)
        if wanted < n:
            line = view.find(b"\n", _place(document, n - wanted - 1), end) + 1
            cut = line or _place(document, n - wanted)
            at = at if cut == end else cut
            break
        wanted, at = wanted - n, document.start
    return Part(spool, text.start, at), Part(spool, at, text.stop)


def _without_runs(text: Part, held_out: Sequence[Part]) -> tuple[Part, int]:
    """Return `text` without the lines that share a run with `held_out`, and the bytes of these."""
    held = Spool()
    for part in held_out:
        for chunk in part.chunks():
            held.write(chunk)
        if part.is_open:
            held.write(END)
    runs = Runs.among(Part(held, 0, held.length).bytes, RUN_TOKENS)
    before, is_open = text.n_bytes, text.is_open
    while True:
        marked = runs.marked(text.bytes)
        first = next(marked, None)
        if first is None:
            return text, before - text.n_bytes
        # What is cut joins its neighbours, who may make a run together: so it is looked at again.
        left = _cut_out(text, chain([first], marked))
        if is_open and left.length and left.view()[left.length - 1] == END[0]:
            text = Part(left, 0, left.length - 1)
        else:
            text = Part(left, 0, left.length)


def _cut_out(text: Part, marked: Iterable[tuple[int, int]]) -> Spool:
    """Return `text` without the lines that hold `marked` bytes; empty documents go."""
    left, view, at = _Left(), text.spool.view(), 0
    for start, stop in marked:
        start, stop = _widened(view, text.stop, start, stop)
        left.copy(Part(text.spool, at, max(start, at)))
        left.ends(view[max(start, at) : stop].count(END))
        at = max(at, stop)
    left.copy(Part(text.spool, at, text.stop))
    return left.spool


class _Left:
    """The rest of a text, as it is written: no document without a byte."""

    def __init__(self) -> None:
        self.spool = Spool()
        self._is_ended = True

    def copy(self, part: Part) -> None:
        for chunk in part.chunks():
            content = chunk[1:] if self._is_ended and chunk.startswith(END) else chunk
            self.spool.write(content)
            self._is_ended = chunk.endswith(END)

    def ends(self, n: int) -> None:
        if n and not self._is_ended:
            self.spool.write(END)
            self._is_ended = True


def _widened(text: bytes | mmap.mmap, n: int, start: int, stop: int) -> tuple[int, int]:
    """Return the lines, or where these are long the words, that text[start:stop] is of.

    The text has n bytes.
    """
    for marks in ((b"\n", END), (b" ", b"\n", END)):
        left = max(text.rfind(mark, max(start - LONGEST_LINE, 0), start) for mark in marks) + 1
        last = min(stop + LONGEST_LINE, n)
        ends = [at for mark in marks if (at := text.find(mark, stop - 1, last)) >= 0]
        is_whole = left > 0 or start <= LONGEST_LINE
        if is_whole and (ends or stop + LONGEST_LINE >= n):
            right = min(ends) + 1 if ends else n
            if ends and text[right - 1 : right] == END:
                right = max(right - 1, stop)
            return min(left, start), max(right, stop)
    while start > 0 and text[start] & 0xC0 == 0x80:
        start -= 1
    while stop < n and text[stop] & 0xC0 == 0x80:
        stop += 1
    return start, stop
