"""The parts of a text: trained on, validated on, and sealed until the verdict asks for it.

Where they meet is a place in the text, so that every tokenizer is evaluated on the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from paribus.digests import digest
from paribus.engine.data import cache
from paribus.engine.data.cache import shard_hashes, sharded
from paribus.engine.data.corpora import find_corpus
from paribus.engine.data.duplicates import (
    END,
    Runs,
    repetitions,
    without_repetitions,
    without_runs,
)
from paribus.engine.data.pieces import Piece, pieces
from paribus.engine.data.source import Scan, Source, encoded, scan, tokenized
from paribus.engine.data.tokenizer import CharacterTokenizer, Tokenizer, tokenizer_of
from paribus.engine.data.tokens import ShardedTokens, Tokens, combined, tokens_digest
from paribus.engine.setting import CORPUS, Data
from paribus.errors import ParibusError


@dataclass(frozen=True)
class SealedPart:
    """Text that nothing is read of: not trained on, evaluated on, described or asked about.

    Attributes:
        digest: SHA-256 of its text.
        n_bytes, n_documents: UTF-8 bytes and documents; all else that is known of it.
    """

    digest: str
    n_bytes: int
    n_documents: int
    _open: Callable[[], Tokens] = field(repr=False, compare=False)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ParibusError(
            "the test part is sealed until the verdict asks for it; it is opened, once and on the "
            "record, with paribus.engine.data.open_test"
        )

    __getitem__ = __len__ = __iter__ = __array__ = _refuse


class OpeningRecord(Protocol):
    """Keeper of whether the test part was read: a `paribus.results.ResultsFolder`."""

    @property
    def path(self) -> Path:
        """The name of the record in messages."""
        ...

    def read_opened(self) -> Mapping[str, str] | None:
        """Return what was written; None where nothing was.

        Raises ParibusError where that is unknown.
        """
        ...

    def write_opened(self, opened: Mapping[str, str]) -> None:
        """Write it, so that no later change of it goes unnoticed."""
        ...


def open_test(test: SealedPart | None, record: OpeningRecord, purpose: str) -> Tokens:
    """Open the test part, after `record` says when and for what `purpose`; return its tokens.

    A results folder is such a record, and seals it. The same purpose may be gone on with after an
    interruption; another one is refused, since what is decided twice on one text is not decided on
    fresh text. Raises ParibusError, also for a study without a test part and for another text than
    was opened.
    """
    if test is None:
        raise ParibusError(
            "the study has no test part; seal one with data.test_fraction or data.test_path"
        )
    found = record.read_opened()
    if found is None:
        opened = datetime.now(UTC).isoformat(timespec="seconds")
        record.write_opened({"purpose": purpose, "digest": test.digest, "opened": opened})
        return test._open()
    if found["purpose"] != purpose:
        raise ParibusError(
            f"the test part was opened already, for '{found['purpose']}' ({record.path}); for "
            f"'{purpose}' it is no longer fresh: seal other text"
        )
    if found["digest"] != test.digest:
        raise ParibusError(
            f"{record.path} is of a test part with SHA-256 {found['digest'][:12]}..., and this "
            f"one has {test.digest[:12]}...; restore the text"
        )
    return test._open()


VALIDATION, TEST = "validation", "test"
RULE = "held-out text must be nowhere else: take it out of one of them"


def require_other_files(
    data: Data, training: Mapping[str, Source], held: Mapping[str, Source]
) -> None:
    """Raise ParibusError where a file that is held out is trained on or held out twice."""
    sources = {**training, **held}
    files = {name: _files(source) for name, source in sources.items()}
    for name, words in _held_out(data, held).items():
        for other in sources:
            if other != name and (again := files[name] & files[other]):
                raise ParibusError(f"{min(again)} is of {words}, and {_elsewhere(other)}; {RULE}")


def require_other_text(data: Data, held: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Raise ParibusError where one of `texts`, digests by name, is one that is held out.

    `held` are the digests of held-out text, `validation` and `test`. A copy, compressed or not, is
    the same text, and so is a folder that holds no more than it. The corpus is compared whole where
    a part of it is held out.
    """
    whole = {CORPUS: texts[CORPUS]} if CORPUS in _held_out(data, held) else {}
    for name, sha256 in {**held, **whole}.items():
        for other, found in {**texts, **held}.items():
            if other != name and found == sha256:
                words = _held_out(data, held).get(name, f"data.{name}_fraction")
                raise ParibusError(
                    f"the text of {words} (SHA-256 {sha256[:12]}) is there again, and "
                    f"{_elsewhere(other)}; {RULE}"
                )


def _held_out(data: Data, held: Mapping[str, object]) -> dict[str, str]:
    """Return which texts are held out, all or in part, with the words for them."""
    own = {VALIDATION: data.validation_path, TEST: data.test_path}
    told = {name: f"data.{name}_path" for name in held if own[name] is not None}
    if data.validation_path is None or data.test_fraction:
        told[CORPUS] = "data.corpus, whose last part is held out"
    return told


def _elsewhere(name: str) -> str:
    if name in (VALIDATION, TEST):
        return f"the {name} text would be the same"
    where = "data.path" if name == CORPUS else f"data.sources.{name}"
    return f"{where} would have it trained on"


def _files(source: Source) -> set[Path]:
    corpus = find_corpus(source.data, source.folder)
    files = corpus.files(source.data, source.folder) if corpus.files else []
    return {file.resolve() for file in files}


Rates = dict[str, int]


@dataclass(frozen=True)
class HeldOutText:
    """Facts of a held-out text, whatever its tokens.

    Attributes:
        sha256: of its bytes; of several documents, of the list of their digests.
        n_bytes, n_documents: UTF-8 bytes and documents; one that the split cut counts.
    """

    sha256: str
    n_bytes: int
    n_documents: int

    @classmethod
    def of(cls, found: Scan) -> HeldOutText:
        """Take it from a pass over the held-out text."""
        return cls(found.digest, found.n_bytes, found.n_documents)


@dataclass(frozen=True)
class Split:
    """A text as tokens.

    Attributes:
        train: the training tokens of each source, in the order of the study.
        train_bytes: the UTF-8 bytes of each.
        validation: tokens.
        held_out: what is known of the validation text and, where there is one, of the test text.
        test: the sealed part, where the study has one.
        rates: of each source, what deduplication took out; empty where nothing was looked for.
    """

    train: dict[str, Tokens]
    train_bytes: dict[str, int]
    validation: Tokens
    held_out: dict[str, HeldOutText]
    test: SealedPart | None
    rates: dict[str, Rates]


@dataclass(frozen=True)
class Texts:
    """The texts of `data`, each gone through once.

    Attributes:
        training: the texts that are trained on, by the name of the source: `corpus`, of which some
            may be held out, and those of the mixture.
        held: texts that are held out and files of their own: `validation` and `test`.
        found: what is known of each.
        tokenizer: of all of them. A sealed text of its own gives it no characters.
    """

    data: Data
    training: dict[str, Source]
    held: dict[str, Source]
    found: dict[str, Scan]
    tokenizer: Tokenizer

    @classmethod
    def read(cls, data: Data, folder: Path) -> Texts:
        """Read all texts. Raises ParibusError where one is missing, or cannot be tokenized."""
        training = {CORPUS: Source(data, folder)}
        training |= {name: Source(data.for_source(name), folder) for name in data.other_sources}
        held = {}
        for name, path in ((VALIDATION, data.validation_path), (TEST, data.test_path)):
            if path is not None:
                if data.path is None:
                    raise ParibusError(
                        f"data.{name}_path = '{path}' is a file in the form of data.path, and the "
                        f"corpus '{data.corpus}' has none; use data.{name}_fraction"
                    )
                held[name] = Source(data.model_copy(update={"path": path}), folder)
        require_other_files(data, training, held)
        sources = training | held
        found = {name: source.scan() for name, source in sources.items()}
        digests = {name: scan.digest for name, scan in found.items()}
        apart = {name: digests[name] for name in held}
        require_other_text(data, apart, {name: digests[name] for name in training})
        ends = any(scan.n_documents > 1 for scan in found.values())
        known = set().union(*(s.characters for name, s in found.items() if name != TEST))
        tokenizer = tokenizer_of(data, "".join(sorted(known)), ends, folder)
        sealed = set(found[TEST].characters) if TEST in found else set()
        unknown = sorted(sealed - known)
        if unknown and isinstance(tokenizer, CharacterTokenizer):
            raise ParibusError(
                f"the test text has the character {unknown[0]!r}, and the texts for training "
                "and validation do not, so that no model can predict it; take it out, or use a "
                "BPE tokenizer"
            )
        return cls(data, training, held, found, tokenizer)

    @property
    def has_ends(self) -> bool:
        """True where documents are closed by a token: where any text has several."""
        return any(scan.n_documents > 1 for scan in self.found.values())

    def split(self) -> Split:
        """Return every part as tokens.

        Raises ParibusError where one that is held out is trained on.
        """
        parts = self._in_a_row() if self.data.deduplicate == "none" else self._deduplicated()
        held = {name: part.sha256 for name, part in parts.held_out.items()}
        require_other_text(self.data, held, {n: self.found[n].digest for n in self.training})
        return parts

    def _own(self, name: str) -> Tokens:
        source = self.training.get(name) or self.held[name]
        return tokenized(source, self.found[name], self.tokenizer, self._ends(name))

    def _ends(self, name: str) -> bool:
        """Return whether documents of this text are closed by a token.

        Held-out text decides it alone: arms that train on other texts are scored on its tokens.
        """
        if name in (VALIDATION, TEST):
            return self.found[name if name in self.held else CORPUS].n_documents > 1
        return self.has_ends

    def _in_a_row(self) -> Split:
        data, whole = self.data, self.found[CORPUS]
        # The end of a document is a place of its own: of characters, these are the tokens.
        places = whole.n_characters + (whole.n_documents if whole.n_documents > 1 else 0)
        end = int(places * (1 - data.test_fraction))
        begin = int(places * (1 - data.test_fraction - data.validation_fraction))
        cut = dict(self.held)
        if TEST not in cut and data.test_fraction:
            cut[TEST] = self._corpus_part(end, places)
        if VALIDATION not in cut:
            cut[VALIDATION] = self._corpus_part(begin, end)
        else:
            begin = end
        known = {name: HeldOutText.of(self.found.get(name) or cut[name].scan()) for name in cut}
        of_corpus = [known[name].n_bytes for name in cut if name not in self.held]
        sizes = {name: self.found[name].n_bytes for name in data.shares}
        if CORPUS in sizes:
            sizes[CORPUS] -= sum(of_corpus)
        rest = self._corpus_part(0, begin)
        train = {
            name: self._cut_out(rest, CORPUS) if name == CORPUS else self._own(name)
            for name in data.shares
        }

        def tokens_of(name: str) -> Tokens:
            return self._own(name) if name in self.held else self._cut_out(cut[name], name)

        test = _sealed(known[TEST], lambda: tokens_of(TEST)) if TEST in cut else None
        return Split(train, sizes, tokens_of(VALIDATION), known, test, {})

    def _corpus_part(self, start: int, stop: int) -> Source:
        return self.training[CORPUS].part(self.found[CORPUS], start, stop)

    def _cut_out(self, part: Source, name: str) -> Tokens:
        """Return the tokens of a part of the corpus."""
        return tokenized(part, self.found[CORPUS], self.tokenizer, self._ends(name))

    def _deduplicated(self) -> Split:
        about = self._about
        is_small = self._is_small
        key = digest(about | {"what": "known"})
        known = None if is_small else cache.recall(key)
        if known is None:
            known = self._known()
            if not is_small:
                cache.keep(key, known)

        def tokens_of(name: str) -> Tokens:
            def make() -> Iterator[np.ndarray]:
                yield np.zeros(0, self.tokenizer.dtype)
                pieces, ends = self._deduplicated_pieces(name), self._ends(name)
                yield from encoded(pieces, self.tokenizer, ends)

            if is_small:
                return np.concatenate(list(make()))
            return sharded(about | {"part": name}, make, np.dtype(self.tokenizer.dtype))

        held_out = {name: HeldOutText(**of) for name, of in known["held_out"].items()}
        rates: dict[str, Rates] = known["rates"]
        sizes = {name: of["train_bytes"] - of["train_bytes_cut"] for name, of in rates.items()}
        train = {name: tokens_of(f"train of {name}") for name in self.data.shares}
        test = _sealed(held_out[TEST], lambda: tokens_of(TEST)) if TEST in held_out else None
        return Split(train, sizes, tokens_of(VALIDATION), held_out, test, rates)

    @property
    def _is_small(self) -> bool:
        return all(scan.pieces is not None for scan in self.found.values())

    @property
    def _about(self) -> dict[str, Any]:
        """All that decides the deduplicated text and its tokens."""
        return {
            "deduplicate": self.data.deduplicate,
            "rules": 4,
            "texts": {name: scan.digest for name, scan in self.found.items()},
            "tokenizer": self.tokenizer.digest,
            "validation_fraction": self.data.validation_fraction,
            "test_fraction": self.data.test_fraction,
        }

    def _known(self) -> dict[str, Any]:
        """Return what is found out of the deduplicated text besides its tokens."""
        has_test = self.data.test_fraction > 0 or TEST in self.held
        names = (VALIDATION, TEST) if has_test else (VALIDATION,)
        scans = {name: scan(self._deduplicated_pieces(name), keep=False) for name in names}
        held_out = {name: asdict(HeldOutText.of(found)) for name, found in scans.items()}
        rates = {name: parts.rates for name, parts in self._parts.items()}
        return {"held_out": held_out, "rates": rates}

    def _deduplicated_pieces(self, name: str) -> Iterable[Piece]:
        """Return `validation`, `test`, or `train of` a source."""
        source = name.removeprefix("train of ")
        if source != name:
            return self._parts[source].train
        return getattr(self._parts[CORPUS], name)

    @cached_property
    def _parts(self) -> dict[str, Parts]:
        """The deduplicated text of each source."""
        data, mode = self.data, self.data.deduplicate
        read = {name: partial(self._documents, name) for name in self.found}
        own = {name: Part(read[name]) for name in (VALIDATION, TEST) if name in self.found}
        found = deduplicated(
            read[CORPUS],
            mode,
            own.get(VALIDATION, data.validation_fraction),
            own.get(TEST, data.test_fraction),
        )
        others = {
            name: deduplicated(read[name], mode, found.validation, found.test)
            for name in self.data.other_sources
        }
        return {CORPUS: found, **others}

    def _documents(self, name: str) -> Iterator[str]:
        source = (self.training | self.held)[name].known(self.found[name])
        for _, document in groupby(source.pieces(), key=lambda piece: piece.document):
            yield "".join(piece.text for piece in document)


@dataclass(frozen=True)
class Part:
    """Documents, read again each time that their pieces are asked for.

    Attributes:
        read: reads the documents.
        is_open: whether the last document goes on elsewhere.
    """

    read: Callable[[], Iterable[str]]
    is_open: bool = False

    def __iter__(self) -> Iterator[Piece]:
        before = None
        for piece in pieces(self.read()):
            if before:
                yield before
            before = piece
        if before:
            yield before._replace(is_last=False) if self.is_open else before

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of the documents."""
        return sum(len(text.encode()) for text in self.read())


@dataclass(frozen=True)
class Parts:
    """A corpus without repetitions, split; `rates` count what was removed."""

    train: Part
    validation: Part
    test: Part
    rates: Rates


def deduplicated(
    read: Callable[[], Iterable[str]], mode: str, validation: Part | float, test: Part | float
) -> Parts:
    """Return the documents that `read` gives, split, with no run of the held-out text in training.

    `mode` is `held-out`, or `exact` or `near`: these also remove documents and passages that repeat
    an earlier one. `validation` and `test` are texts of their own, or shares of the characters.
    Memory grows with the longest document, the held-out text and the number of passages.
    """
    kept, rates = read, {"bytes": Part(read).n_bytes}
    if mode != "held-out":
        repeated, rates = repetitions(read(), is_near=mode == "near")
        kept = lambda: without_repetitions(read(), repeated)  # noqa: E731
    n = sum(map(len, kept()))
    n_test = 0 if isinstance(test, Part) else round(n * test)
    n_validation = 0 if isinstance(validation, Part) else round(n * validation)
    cuts, are_open = _line_ends(kept(), [n - n_test - n_validation, n - n_test])
    rest = Part(lambda: _between(kept(), 0, cuts[0]), are_open[0])
    if not isinstance(validation, Part):
        validation = Part(lambda: _between(kept(), *cuts), are_open[1])
    if not isinstance(test, Part):
        test = Part(lambda: _between(kept(), cuts[1], n))
    texts = (b"".join(text.encode() + END for text in held.read()) for held in (validation, test))
    runs = Runs([np.frombuffer(text, np.uint8) for text in texts])
    train = Part(lambda: without_runs(rest.read(), runs), rest.is_open)
    n_bytes = rest.n_bytes
    rates |= {"train_bytes": n_bytes, "train_bytes_cut": n_bytes - train.n_bytes}
    return Parts(train, validation, test, rates)


def _line_ends(documents: Iterable[str], places: list[int]) -> tuple[list[int], list[bool]]:
    """Return each of `places`, in characters, moved to the end of its line if that has one; and
    whether it is inside a document."""
    begin, moved, are_inside = 0, list(places), [False] * len(places)
    for text in documents:
        for i, place in enumerate(places):
            if 0 < (at := place - begin) < len(text):
                at = text.find("\n", at - 1) + 1 or at
                moved[i], are_inside[i] = begin + at, at < len(text)
        begin += len(text)
    return moved, are_inside


def _between(documents: Iterable[str], first: int, last: int) -> Iterator[str]:
    """Yield the characters `first` to `last` of `documents`."""
    begin = 0
    for text in documents:
        if part := text[max(first - begin, 0) : max(last - begin, 0)]:
            yield part
        begin += len(text)


def _sealed(known: HeldOutText, tokens: Callable[[], Tokens]) -> SealedPart:
    return SealedPart(known.sha256, known.n_bytes, known.n_documents, tokens)


def part_digest(tokens: Tokens) -> str:
    """Return `tokens_digest`, found once for each part of what is in the cache."""
    if not isinstance(tokens, ShardedTokens):
        return tokens_digest(tokens)
    hashes, size = shard_hashes(tokens), tokens.shards.shard_tokens
    about = {"part of": combined(hashes), "from": tokens.start, "to": tokens.stop}
    key = digest(about)
    if found := cache.recall(key):
        return str(found["digest"])
    # What a part has whole of the text's stretches was hashed when it was written.
    is_aligned = tokens.start % size == 0
    known = hashes[tokens.start // size : tokens.stop // size] if is_aligned else []
    found = tokens_digest(tokens, known)
    cache.keep(key, about | {"digest": found})
    return found
