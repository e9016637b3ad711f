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
COPY_BYTES = 2**20


def spooled(contents: Iterable[bytes]) -> bytes | mmap.mmap:
    """Return all of `contents` as one, in a file without a name in the folder of the cache.

    Raises ParibusError where that cannot be written.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A buffer would be written where nobody expects it.
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for content in contents:
                left = memoryview(content)
                while left:  # a disk that is nearly full takes a part
                    left = left[file.write(left) :]
            # An empty file cannot be mapped.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
    except OSError as error:
        raise ParibusError(
            f"cannot write the cache {folder}: {error.strerror}; set PARIBUS_CACHE to a "
            "folder that can be written"
        ) from None


@dataclass(frozen=True)
class Part:
    """Documents between two places of a text, each closed by END; the last may go on elsewhere.

    Gone through, it gives their pieces, as often as it is asked.
    """

    text: bytes | mmap.mmap
    start: int
    stop: int

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Part:
        """Return all of `documents`."""

        def contents() -> Iterator[bytes]:
            for document in documents:
                is_empty = True
                for text in (document,) if isinstance(document, str) else document:
                    is_empty = is_empty and not text
                    yield text.encode()
                if not is_empty:
                    yield END

        return cls.whole(spooled(contents()))

    @classmethod
    def whole(cls, text: bytes | mmap.mmap) -> Part:
        """Return all of `text`."""
        return cls(text, 0, len(text))

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def is_open(self) -> bool:
        """True where its last document goes on elsewhere."""
        return self.stop > self.start and self.text[self.stop - 1] != END[0]

    @property
    def bytes(self) -> np.ndarray:
        """[n] of all its documents with their ends, not in memory where they are many, uint8."""
        return np.frombuffer(self.text, np.uint8)[self.start : self.stop]

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, some at a time."""
        for start in range(self.start, self.stop, COPY_BYTES):
            yield self.text[start : min(start + COPY_BYTES, self.stop)]

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
        at = self.start
        while at < self.stop:
            end = self.text.find(END, at, self.stop)
            end = self.stop if end < 0 else end
            yield codecs.iterdecode(Part(self.text, at, end).chunks(), "utf-8")
            at = end + 1


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
    """Passages of a text, each read when it is asked for, in the form in which it is compared.

    Attributes:
        which: [n] the segments of the text that they are.
        stops: [segments + 1] where each segment begins, and the last one ends.
    """

    text: bytes | mmap.mmap
    which: Sequence[int]
    stops: Sequence[int]
    form: Callable[[str], str]

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        at = self.which[i]
        return self.form(self.text[self.stops[at] : self.stops[at + 1]].decode())


def _without_repetitions(documents: Iterable[Document], near: bool) -> tuple[Part, dict[str, int]]:
    """Return `documents` without those, and without the passages, that repeat an earlier one.

    With `near` also without passages that nearly do. Of what was seen 128-bit hashes are kept: two
    texts have one by chance in 1 of 10^20 corpora of 10^9 passages.
    """
    stops, which = array("q", [0]), array("q")
    new: list[range] = []  # the segments of each document that repeats none
    n_documents = n_kept = 0

    def contents() -> Iterator[bytes]:
        nonlocal n_documents
        whole: set[bytes] = set()
        for document in documents:
            first, n_passages, found = len(stops) - 1, len(which), hashlib.blake2b(digest_size=16)
            for segment, is_passage in segments(document):
                if is_passage:
                    which.append(len(stops) - 1)
                content = segment.encode()
                found.update(content)
                stops.append(stops[-1] + len(content))
                yield content
            n_documents += 1
            if _is_new(found.digest(), whole):
                new.append(range(first, len(stops) - 1))
            else:
                del which[n_passages:]

    text = spooled(contents())
    repeated = _repeated(_Passages(text, which, stops, normalized if near else str.strip), near)
    gone = bytearray(len(stops))
    for i, is_gone in zip(which, repeated.tolist(), strict=True):
        gone[i] = is_gone

    def kept() -> Iterator[bytes]:
        nonlocal n_kept
        for document in new:
            left = [i for i in document if not gone[i]]
            if any(text[stops[i] : stops[i + 1]].decode().strip() for i in left):
                yield from (text[stops[i] : stops[i + 1]] for i in left)
                yield END
                n_kept += 1

    part = Part.whole(spooled(kept()))
    return part, {
        "documents": n_documents,
        "documents_dropped": n_documents - n_kept,
        "passages": len(which),
        "passages_dropped": int(repeated.sum()),
        "bytes": len(text),
        "bytes_dropped": len(text) - part.n_bytes,
    }


def _repeated(passages: _Passages, near: bool) -> np.ndarray:
    """Return [n] whether each passage repeats an earlier one, or with `near` nearly, bool."""
    seen: set[bytes] = set()
    hashes = (hashlib.blake2b(text.encode(), digest_size=16).digest() for text in passages)
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


def _split(part: Part, wanted: int) -> tuple[Part, Part]:
    """Return the first documents, and the last ones with `wanted` characters.

    One is cut in two, at the end of a line where it has one there, so `wanted` may be missed by a
    line.
    """
    text, at = part.text, part.stop
    while at > part.start and wanted:
        end = at - (text[at - 1] == END[0])
        document = Part(text, max(text.rfind(END, part.start, end) + 1, part.start), end)
        n = _characters(document)
        if wanted < n:
            line = text.find(b"\n", _place(document, n - wanted - 1), end) + 1
            cut = line or _place(document, n - wanted)
            at = at if cut == end else cut
            break
        wanted, at = wanted - n, document.start
    return Part(text, part.start, at), Part(text, at, part.stop)


def _without_runs(part: Part, held_out: Sequence[Part]) -> tuple[Part, int]:
    """Return `part` without the lines that share a run with `held_out`, and the bytes of these."""
    held = spooled(
        content for one in held_out for content in chain(one.chunks(), [END] * one.is_open)
    )
    runs = Runs.among(Part.whole(held).bytes, RUN_TOKENS)
    before, is_open = part.n_bytes, part.is_open
    while True:
        marked = runs.marked(part.bytes)
        first = next(marked, None)
        if first is None:
            return part, before - part.n_bytes
        # What is cut joins its neighbours, who may make a run together: so it is looked at again.
        left = spooled(_cut_out(part, chain([first], marked)))
        part = Part(left, 0, len(left) - (is_open and left[-1:] == END))


def _cut_out(part: Part, marked: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield `part` without the lines that hold `marked` bytes; empty documents go."""
    text, at, is_ended = part.text, 0, True
    widened = (_widened(text, part.stop, start, stop) for start, stop in marked)
    for start, stop in chain(widened, [(part.stop, part.stop)]):
        for chunk in Part(text, at, max(start, at)).chunks():
            yield chunk[1:] if is_ended and chunk.startswith(END) else chunk
            is_ended = chunk.endswith(END)
        if END in text[max(start, at) : stop] and not is_ended:
            yield END
            is_ended = True
        at = max(at, stop)


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
