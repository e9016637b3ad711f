"""Taking out what a text repeats, and from the training text all that the held-out text has too.

Done once for a text. Of exact repetitions hashes are kept, and documents come one by one; what is
left of the text is held in memory until it is split and cut, and for near ones all of it is.

1. Documents and passages that repeat an earlier one go: with `exact` those of the same characters,
   with `near` also those whose shingles have a Jaccard similarity of NEAR_DUPLICATE_JACCARD or more
   with an earlier one (see `duplicates`); with `held-out` none.
2. The text is split, at the end of a line.
3. From the training text go the lines that hold any run of RUN_TOKENS bytes of the held-out text. A
   token is a byte at least, so no run of as many tokens is left in both, for any tokenizer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from paribus.data.duplicates import near_duplicate_pairs, normalized, segments
from paribus.data.leakage import RUN_TOKENS, Runs
from paribus.data.pieces import Document, Piece, pieces

# The end of a document, among bytes of UTF-8, which has no such byte.
END = b"\xff"
LONGEST_LINE = 1000  # bytes; of a longer one, words go


@dataclass(frozen=True)
class Parts:
    """A text that was deduplicated and split, as pieces, and what was taken out.

    Attributes:
        train, validation, test: the parts; the last document of train may go on in validation.
        rates: counts, for a reader to divide: documents, passages and bytes, in all and dropped as
            repetitions; bytes of the training text, and those that were cut out of it because the
            held-out text has them too.
    """

    train: list[Piece]
    validation: list[Piece]
    test: list[Piece]
    rates: dict[str, int] = field(default_factory=dict)


def deduplicated(
    documents: Iterable[str],
    mode: str,
    validation: Sequence[str] | float,
    test: Sequence[str] | float,
) -> Parts:
    """`documents` split, with nothing of the held-out parts in training.

    `mode` is `held-out`, `exact` or `near`; `validation` and `test` are documents of their own,
    which stay as they are, or the share of the text that is kept for them.
    """
    if mode == "held-out":
        kept = list(documents)
        rates = {"bytes": sum(map(_size, kept))}
    elif mode == "exact":
        kept, rates = _without_exact(documents)
    else:
        kept, rates = _without_near(list(documents))
    total = sum(map(len, kept))
    share = {"validation": validation, "test": test}
    rest = kept
    held: dict[str, list[Document]] = {}
    is_open = {"train": False, "validation": False}  # whether its last document goes on elsewhere
    for name in ("test", "validation"):
        own = share[name]
        if isinstance(own, float | int):
            if name == "validation":
                is_open["validation"] = is_open["train"]
            rest, part, is_open["train"] = _split(rest, round(total * own))
            held[name] = list(part)
        else:
            held[name] = list(own)
    bytes_held = b"".join(
        "".join(d).encode("utf-8", "surrogatepass") + END for part in held.values() for d in part
    )
    train, dropped = _without_runs(rest, bytes_held, is_open["train"])
    rates |= {"train_bytes": sum(map(_size, rest)), "train_bytes_cut": dropped}
    return Parts(
        _pieces(train, is_open["train"]),
        _pieces(held["validation"], is_open["validation"]),
        list(pieces(held["test"])),
        rates,
    )


def _pieces(documents: Sequence[Document], is_open: bool) -> list[Piece]:
    """Pieces of `documents`; with `is_open` the last one does not end here."""
    found = list(pieces(documents))
    if is_open and found:
        found[-1] = found[-1]._replace(is_last=False)
    return found


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _without_exact(documents: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """`documents` without those, and without the passages, that equal an earlier one.

    Of what was seen 128-bit hashes are kept: two texts have one by chance in 1 of 10^20 corpora of
    10^9 passages.
    """
    kept: list[str] = []
    whole: set[bytes] = set()
    seen: set[bytes] = set()
    rates: dict[str, int] = dict.fromkeys(("documents", "passages", "passages_dropped", "bytes"), 0)
    for document in documents:
        rates["documents"] += 1
        rates["bytes"] += _size(document)
        if not _is_new(document, whole):
            continue
        texts = []
        for text, counts in segments(document):
            rates["passages"] += counts
            if counts and not _is_new(text.strip(), seen):
                rates["passages_dropped"] += 1
            else:
                texts.append(text)
        if any(text.strip() for text in texts):
            kept.append("".join(texts))
    return kept, _rates(rates, kept)


def _is_new(text: str, seen: set[bytes]) -> bool:
    """Whether no earlier text was the same; from now on it is."""
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if key in seen:
        return False
    seen.add(key)
    return True


def _without_near(documents: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """`documents` without those that repeat an earlier one, and the passages that nearly do."""
    distinct = list(dict.fromkeys(documents))
    parts = [list(segments(document)) for document in distinct]
    passages = [text.strip() for of_one in parts for text, counts in of_one if counts]
    repeated = _near_repetitions(passages)
    kept, place = [], 0
    for of_one in parts:
        texts = []
        for text, counts in of_one:
            if not (counts and repeated[place]):
                texts.append(text)
            place += counts
        if any(text.strip() for text in texts):
            kept.append("".join(texts))
    rates = {
        "documents": len(documents),
        "passages": len(passages),
        "passages_dropped": int(repeated.sum()),
        "bytes": sum(map(_size, documents)),
    }
    return kept, _rates(rates, kept)


def _rates(found: dict[str, int], kept: Sequence[str]) -> dict[str, int]:
    """The counts of `Parts.rates` that repetitions have."""
    return {
        "documents": found["documents"],
        "documents_dropped": found["documents"] - len(kept),
        "passages": found["passages"],
        "passages_dropped": found["passages_dropped"],
        "bytes": found["bytes"],
        "bytes_dropped": found["bytes"] - sum(map(_size, kept)),
    }


def _near_repetitions(passages: Sequence[str]) -> np.ndarray:
    """[n] whether each passage repeats an earlier one, or nearly, bool."""
    keys = [normalized(text) for text in passages]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    found = np.array([first[key] < i for i, key in enumerate(keys)], bool)
    texts = list(dict.fromkeys(keys))
    # The later one of a pair goes; a chain of pairs leaves its first.
    for _, later in near_duplicate_pairs(texts).tolist():
        found[first[texts[later]]] = True
    return found


def _split(documents: Sequence[str], wanted: int) -> tuple[list[str], list[str], bool]:
    """(the first ones, the last ones with `wanted` characters, whether one was cut in two).

    It is cut at the end of a line where it has one there, so `wanted` may be missed by a line.
    """
    rest = list(documents)
    last: list[str] = []
    while rest and wanted >= len(rest[-1]):
        last.append(rest.pop())
        wanted -= len(last[-1])
    if not rest or not wanted:
        return rest, last[::-1], False
    text = rest.pop()
    at = text.find("\n", len(text) - wanted - 1) + 1 or len(text) - wanted
    if at < len(text):
        last.append(text[at:])
    rest.append(text[:at])
    return rest, last[::-1], at < len(text)


def _without_runs(
    documents: Sequence[str], held_out: bytes, is_open: bool
) -> tuple[list[str], int]:
    """`documents` without the lines that share a run with `held_out`, and the bytes of these."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in documents]
    before = sum(map(len, encoded))
    runs = Runs.of(np.frombuffer(held_out, np.uint8), RUN_TOKENS)
    while True:
        text = END.join([*encoded, b""])[: -1 if is_open else None]
        marked = runs.covered(np.frombuffer(text, np.uint8))
        if not marked.any():
            break
        # What is cut joins its neighbours, who may make a run together: so it is looked at again.
        encoded = [part for part in _cut_out(text, marked).split(END) if part]
    return [part.decode("utf-8", "surrogatepass") for part in encoded], before - sum(
        map(len, encoded)
    )


def _cut_out(text: bytes, marked: np.ndarray) -> bytes:
    """`text` without the lines that hold a `marked` byte; ends of documents stay."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.view(np.int8), [0]])))
    kept, at = [], 0
    for start, stop in edges.reshape(-1, 2).tolist():
        start, stop = _widened(text, start, stop)
        if start > at:
            kept.append(text[at:start])
        kept.append(END * text.count(END, max(start, at), stop))
        at = max(at, stop)
    return b"".join([*kept, text[at:]])


def _widened(text: bytes, start: int, stop: int) -> tuple[int, int]:
    """The lines, or where these are long the words, that text[start:stop] is of."""
    for marks in ((b"\n", END), (b" ", b"\n", END)):
        left = max(text.rfind(mark, max(start - LONGEST_LINE, 0), start) for mark in marks) + 1
        ends = [at for mark in marks if (at := text.find(mark, stop - 1, stop + LONGEST_LINE)) >= 0]
        is_whole = left > 0 or start <= LONGEST_LINE
        if is_whole and (ends or stop + LONGEST_LINE >= len(text)):
            right = min(ends) + 1 if ends else len(text)
            if ends and text[right - 1 : right] == END:
                right = max(right - 1, stop)
            return min(left, start), max(right, stop)
    while start > 0 and text[start] & 0xC0 == 0x80:
        start -= 1
    while stop < len(text) and text[stop] & 0xC0 == 0x80:
        stop += 1
    return start, stop


def joined(found: Iterable[Piece]) -> Iterator[str]:
    """Documents, from their pieces; a last one without its end too."""
    waiting: list[str] = []
    for piece in found:
        waiting.append(piece.text)
        if piece.is_last:
            yield "".join(waiting)
            waiting.clear()
    if waiting:
        yield "".join(waiting)
