"""Taking out what a text repeats, and from the training text all that the held-out text has too.

Done once for a text, which is read once. What is kept of it waits beside memory (`spool`); hashes
of passages are kept, with `near` their sketches, and where they stand.

1. Documents and passages that repeat an earlier one go: with `exact` those of the same characters,
   with `near` also those whose shingles have a Jaccard similarity of NEAR_DUPLICATE_JACCARD or more
   with an earlier one (see `duplicates`); with `held-out` none.
2. The text is split, at the end of a line.
3. From the training text go the lines that hold any run of RUN_TOKENS bytes of the held-out text. A
   token is a byte at least, so no run of as many tokens is left in both, for any tokenizer.
"""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

import numpy as np

from paribus.engine.data.duplicates import near_duplicate_pairs, normalized, segments
from paribus.engine.data.leakage import RUN_TOKENS, Runs
from paribus.engine.data.pieces import Document, Piece
from paribus.engine.data.spool import END, Part, Spool, encode

LONGEST_LINE = 1000  # bytes; of a longer one, words go
COUNTED = ("documents", "documents_kept", "passages", "passages_dropped", "bytes")


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
    """`documents` split, with nothing of the held-out parts in training.

    `mode` is `held-out`, `exact` or `near`; `validation` and `test` are texts of their own, which
    stay as they are, or the share of the text that is kept for them. `documents` are gone through
    once; memory grows with the number of passages, and with the longest one.
    """
    if mode == "held-out":
        kept = Part.of(documents)
        rates = {"bytes": kept.n_bytes}
    elif mode == "exact":
        kept, rates = _without_exact(documents)
    else:
        kept, rates = _without_near(documents)
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
    """The documents that `found` are the pieces of; each is gone through before the next one."""
    for _, of_one in groupby(found, key=lambda piece: piece.document):
        yield (piece.text for piece in of_one)


def _without_exact(documents: Iterable[Document]) -> tuple[Part, dict[str, int]]:
    """`documents` without those, and without the passages, that equal an earlier one.

    Of what was seen 128-bit hashes are kept: two texts have one by chance in 1 of 10^20 corpora of
    10^9 passages.
    """
    kept = Spool()
    seen: set[bytes] = set()
    rates: dict[str, int] = dict.fromkeys(COUNTED, 0)
    for document in _distinct(documents, rates):
        before, has_text = kept.length, False
        for text, is_passage in segments(document.texts()):
            rates["passages"] += is_passage
            if is_passage and not _is_new(_hash(text.strip()), seen):
                rates["passages_dropped"] += 1
            else:
                kept.write(encode(text))
                has_text = has_text or bool(text.strip())
        _close(kept, before, has_text, rates)
    part = Part(kept, 0, kept.length)
    return part, _rates(rates, part)


def _distinct(documents: Iterable[Document], rates: dict[str, int]) -> Iterator[Part]:
    """Those that equal no earlier one, each until the next is asked for; all are counted."""
    whole: set[bytes] = set()
    for document in documents:
        spool, found = Spool(), hashlib.blake2b(digest_size=16)
        for text in (document,) if isinstance(document, str) else document:
            content = encode(text)
            found.update(content)
            spool.write(content)
        rates["documents"] += 1
        rates["bytes"] += spool.length
        if _is_new(found.digest(), whole):
            yield Part(spool, 0, spool.length)


def _close(kept: Spool, before: int, has_text: bool, rates: dict[str, int]) -> None:
    """End the document that began at `before`; one without any text goes."""
    if has_text:
        kept.write(END)
        rates["documents_kept"] += 1
    else:
        kept.truncate(before)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(encode(text), digest_size=16).digest()


def _is_new(key: bytes, seen: set[bytes]) -> bool:
    """Whether nothing earlier had this hash; from now on it has."""
    if key in seen:
        return False
    seen.add(key)
    return True


@dataclass(frozen=True)
class _Passages(Sequence[str]):
    """Passages in a spool, normalized, each read when it is asked for.

    Attributes:
        which: [n] the segments of the text that they are.
        stops: [segments + 1] where each segment begins, and the last one ends.
    """

    text: Spool
    which: Sequence[int]
    stops: Sequence[int]

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        return normalized(_segment(self.text, self.stops, self.which[i]))


def _segment(text: Spool, stops: Sequence[int], i: int) -> str:
    return text.view()[stops[i] : stops[i + 1]].decode("utf-8", "surrogatepass")


def _without_near(documents: Iterable[Document]) -> tuple[Part, dict[str, int]]:
    """`documents` without those that repeat an earlier one, and the passages that nearly do."""
    text, stops, ends, which = Spool(), array("q", [0]), array("q"), array("q")
    rates: dict[str, int] = dict.fromkeys(COUNTED, 0)
    for document in _distinct(documents, rates):
        for segment, is_passage in segments(document.texts()):
            if is_passage:
                which.append(len(stops) - 1)
            text.write(encode(segment))
            stops.append(text.length)
        ends.append(len(stops) - 1)
    repeated = _near_repetitions(_Passages(text, which, stops))
    gone = bytearray(len(stops))
    for i, is_gone in zip(which, repeated.tolist(), strict=True):
        gone[i] = is_gone
    kept, first = Spool(), 0
    for end in ends:
        before, has_text = kept.length, False
        for segment in (_segment(text, stops, i) for i in range(first, end) if not gone[i]):
            kept.write(encode(segment))
            has_text = has_text or bool(segment.strip())
        _close(kept, before, has_text, rates)
        first = end
    rates |= {"passages": len(which), "passages_dropped": int(repeated.sum())}
    part = Part(kept, 0, kept.length)
    return part, _rates(rates, part)


def _rates(found: dict[str, int], kept: Part) -> dict[str, int]:
    """The counts of `Parts.rates` that repetitions have."""
    return {
        "documents": found["documents"],
        "documents_dropped": found["documents"] - found["documents_kept"],
        "passages": found["passages"],
        "passages_dropped": found["passages_dropped"],
        "bytes": found["bytes"],
        "bytes_dropped": found["bytes"] - kept.n_bytes,
    }


def _near_repetitions(passages: _Passages) -> np.ndarray:
    """[n] whether each passage repeats an earlier one, or nearly, bool."""
    seen: set[bytes] = set()
    found = np.array([not _is_new(_hash(text), seen) for text in passages], bool)
    distinct = np.flatnonzero(~found)
    which = [passages.which[i] for i in distinct.tolist()]
    # The later one of a pair goes; a chain of pairs leaves its first.
    pairs = near_duplicate_pairs(_Passages(passages.text, which, passages.stops))
    found[distinct[pairs[:, 1]]] = True
    return found


def _characters(part: Part) -> int:
    """All of them; the ends of documents are none."""
    n = sum(_begin_characters(chunk).sum() for chunk in part.chunks())
    return int(n) - (len(part) - part.n_bytes)


def _begin_characters(content: bytes) -> np.ndarray:
    """[n] whether a character begins at each byte."""
    return (np.frombuffer(content, np.uint8) & 0xC0) != 0x80


def _place(document: Part, k: int) -> int:
    """Where its character `k` begins in its spool."""
    at = document.start
    for chunk in document.chunks():
        begins = np.flatnonzero(_begin_characters(chunk))
        if k < len(begins):
            return at + int(begins[k])
        k, at = k - len(begins), at + len(chunk)
    return document.stop


def _split(text: Part, wanted: int) -> tuple[Part, Part]:
    """The first documents, and the last ones with `wanted` characters.

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
    """`text` without the lines that share a run with `held_out`, and the bytes of these."""
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
    """`text` without the lines that hold `marked` bytes; documents of which nothing is left go."""
    left, view, at = _Left(), text.spool.view(), 0
    for start, stop in marked:
        start, stop = _widened(view, text.stop, start, stop)
        left.copy(Part(text.spool, at, max(start, at)))
        left.ends(view[max(start, at) : stop].count(END))
        at = max(at, stop)
    left.copy(Part(text.spool, at, text.stop))
    return left.spool


class _Left:
    """What is left of a text, as it is written: no document without a byte."""

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
    """The lines, or where these are long the words, that text[start:stop] is of, of n bytes."""
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
