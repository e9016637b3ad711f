"""Training, validation and test splits of a text.

Boundaries are positions in the text, so every tokenizer is evaluated on the same bytes. The test
split cannot be read before the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from paribus.engine.data.cache import remembered
from paribus.engine.data.duplicates import (
    END,
    drop_repetitions,
    drop_runs,
    repetitions,
    runs_of,
)
from paribus.engine.data.pieces import Piece, documents, pieces
from paribus.engine.data.source import Scan, Text, read_text
from paribus.engine.data.tokenizer import CharacterTokenizer, Tokenizer, tokenizer_of
from paribus.engine.data.tokens import Tokens
from paribus.engine.setting import CORPUS, Data
from paribus.errors import ParibusError

VALIDATION, TEST = "validation", "test"
Rates = dict[str, int]


@dataclass(frozen=True)
class SealedPart:
    """Test text whose tokens are available only through `open_test`.

    Attributes:
        text: digest and counts of the text.
    """

    text: Scan
    _open: Callable[[], Tokens]


def open_test(test: SealedPart | None, opened: Mapping[str, str]) -> Tokens:
    """Return the tokens of the test text after its opening has been recorded.

    Args:
        test: test text of the study, if any.
        opened: content of test_part.json, with the `digest` of the recorded text.

    Raises ParibusError if `test` differs from the recorded text.
    """
    if test is None or test.text.digest != opened["digest"]:
        raise ParibusError(
            f"the test text differs from the text recorded in test_part.json (SHA-256 "
            f"{opened['digest'][:12]}...); restore the recorded text",
            code="different",
        )
    return test._open()


def require_apart(data: Data, scans: Mapping[str, Scan]) -> None:
    """Raise ParibusError if a held-out text is also used for training, or is held out twice.

    Texts are compared by digest. A compressed copy, or a folder that contains only a copy, has the
    same digest as the original. If a fraction of the corpus is held out, the whole corpus counts as
    held out.
    """
    held_out = [name for name in (VALIDATION, TEST) if name in scans]
    if data.validation_path is None or data.test_fraction:
        held_out.append(CORPUS)
    for name in held_out:
        for second, scan in scans.items():
            if second != name and scan.digest == scans[name].digest:
                raise ParibusError(
                    f"the texts '{name}' and '{second}' of [data] are the same (SHA-256 "
                    f"{scan.digest}), but held-out text must not be used twice; set one of them to "
                    "another text",
                    code="conflict",
                )


@dataclass(frozen=True)
class Texts:
    """Texts of a study, with their digests, counts and tokenizer.

    Attributes:
        data: data section of the study.
        texts: texts, keyed by name: `corpus`, part of which may be held out; the other sources of
            the mixture; and `validation` and `test` if these are separate files.
        scans: digest and counts of each text, keyed by name.
        tokenizer: tokenizer of all texts. The vocabulary of a character tokenizer excludes
            characters that occur only in a separate test file.
    """

    data: Data
    texts: dict[str, Text]
    scans: dict[str, Scan]
    tokenizer: Tokenizer

    @classmethod
    def read(cls, data: Data, folder: Path) -> Texts:
        """Read all texts of `data` once, computing their digests and counts.

        Raises ParibusError if a text is missing or cannot be tokenized.
        """
        sources = {CORPUS: data} | {name: data.for_source(name) for name in data.other_sources}
        for name, path in ((VALIDATION, data.validation_path), (TEST, data.test_path)):
            if path is not None:
                if data.path is None:
                    raise ParibusError(
                        f"data.{name}_path = '{path}' requires a corpus in files, but data.path is "
                        f"not set (data.corpus = '{data.corpus}'); set data.path, or use "
                        f"data.{name}_fraction instead",
                        code="conflict",
                    )
                sources[name] = data.model_copy(update={"path": path})
        texts = {name: read_text(source, folder) for name, source in sources.items()}
        scans = {name: text.scan for name, text in texts.items()}
        known = set().union(*(s.characters for name, s in scans.items() if name != TEST))
        ends = any(scan.n_documents > 1 for scan in scans.values())
        tokenizer = tokenizer_of(data, "".join(sorted(known)), ends, folder)
        unknown = set(scans[TEST].characters) - known if TEST in scans else set()
        if unknown and isinstance(tokenizer, CharacterTokenizer):
            raise ParibusError(
                f"the test text contains the character {min(unknown)!r}, but the training and "
                "validation texts do not, so no model can predict it; remove it, or set "
                "data.tokenizer to a BPE tokenizer"
            )
        return cls(data, texts, scans, tokenizer)

    def tokens(self, text: Text, name: str) -> tuple[Tokens, str]:
        """Tokenize `text`, the split or source called `name`, and return the tokens and digest.

        End-of-document tokens are added to training text if any text has several documents. In a
        held-out split, they are added only if its source has several documents. This does not
        depend on the training texts, so arms with different training texts are scored on the same
        tokens.
        """
        ends = any(scan.n_documents > 1 for scan in self.scans.values())
        if name in (VALIDATION, TEST):
            ends = self.scans[name if name in self.scans else CORPUS].n_documents > 1
        return text.tokens(self.tokenizer, ends)

    def split(self) -> tuple[dict[str, Text], list[Rates]]:
        """Split the texts into training and held-out text, and deduplicate them if requested.

        Returns (texts keyed by source, `validation` or `test`; deduplication counts of each
        source, or [] without deduplication). Raises ParibusError if held-out text is also used for
        training.
        """
        is_whole = self.data.deduplicate == "none"
        parts, rates = (self._in_a_row(), []) if is_whole else self._deduplicated()
        held_out = {name: parts[name].scan for name in (VALIDATION, TEST) if name in parts}
        require_apart(self.data, self.scans | held_out)
        return parts, rates

    def _in_a_row(self) -> dict[str, Text]:
        data, corpus, places = self.data, self.texts[CORPUS], self.scans[CORPUS].places
        end = int(places * (1 - data.test_fraction))
        begin = int(places * (1 - data.test_fraction - data.validation_fraction))
        parts = {CORPUS: corpus.part(0, end if VALIDATION in self.texts else begin)}
        parts[VALIDATION] = corpus.part(begin, end)
        if data.test_fraction:
            parts[TEST] = corpus.part(end, places)
        return parts | {name: text for name, text in self.texts.items() if name != CORPUS}

    def _deduplicated(self) -> tuple[dict[str, Text], list[Rates]]:
        data = self.data
        identity = {
            "deduplicate": data.deduplicate,
            "rules": 5,
            "texts": {name: scan.digest for name, scan in self.scans.items()},
            "validation_fraction": data.validation_fraction,
            "test_fraction": data.test_fraction,
        }

        def text(source: str, part: str) -> Text:
            key = identity | {"source": source, "part": part}
            return Text(key, lambda: getattr(self._parts[source], part))

        parts = {name: text(name, "train") for name in data.shares}
        parts[VALIDATION] = text(CORPUS, VALIDATION)
        if data.test_fraction or TEST in self.texts:
            parts[TEST] = text(CORPUS, TEST)
        rates = remembered(
            identity | {"what": "rates"},
            lambda: {name: part.rates for name, part in self._parts.items()},
        )
        return parts, [rates[name] for name in data.shares]

    @cached_property
    def _parts(self) -> dict[str, Parts]:
        """Deduplicated splits, keyed by source."""
        data, mode = self.data, self.data.deduplicate
        read = {n: partial(lambda text: documents(text.read()), t) for n, t in self.texts.items()}
        own = {name: Part(read[name]) for name in (VALIDATION, TEST) if name in read}
        validation = own.get(VALIDATION, data.validation_fraction)
        corpus = deduplicated(read[CORPUS], mode, validation, own.get(TEST, data.test_fraction))
        return {CORPUS: corpus} | {
            name: deduplicated(read[name], mode, corpus.validation, corpus.test)
            for name in data.other_sources
        }


@dataclass(frozen=True)
class Part:
    """Iterable over the pieces of documents, which are read again on each iteration."""

    read: Callable[[], Iterable[str]]  # reads the documents
    is_open: bool = False  # whether the last document continues in another split

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
        """Number of UTF-8 bytes in the documents."""
        return sum(len(text.encode()) for text in self.read())


@dataclass(frozen=True)
class Parts:
    """Training, validation and test splits of a deduplicated corpus.

    `rates` contains the total and removed numbers of documents, passages and bytes.
    """

    train: Part
    validation: Part
    test: Part
    rates: Rates


def deduplicated(
    read: Callable[[], Iterable[str]], mode: str, validation: Part | float, test: Part | float
) -> Parts:
    """Deduplicate and split documents, removing held-out text from the training split.

    Memory use grows with the longest document, the held-out text and the number of passages.

    Args:
        read: function that reads the documents.
        mode: `held-out` removes lines shared with held-out text; `exact` and `near` also remove
            documents and passages that repeat earlier ones.
        validation: separate validation text, or a fraction of the characters.
        test: separate test text, or a fraction of the characters.
    """
    kept, rates = read, {"bytes": Part(read).n_bytes}
    if mode != "held-out":
        repeated, rates = repetitions(read(), is_near=mode == "near")
        kept = lambda: drop_repetitions(read(), repeated)  # noqa: E731
    n = sum(map(len, kept()))
    n_test = 0 if isinstance(test, Part) else round(n * test)
    n_validation = 0 if isinstance(validation, Part) else round(n * validation)
    cuts, are_open = _line_ends(kept(), [n - n_test - n_validation, n - n_test])
    rest = Part(lambda: _between(kept(), 0, cuts[0]), are_open[0])
    if not isinstance(validation, Part):
        validation = Part(lambda: _between(kept(), *cuts), are_open[1])
    if not isinstance(test, Part):
        test = Part(lambda: _between(kept(), cuts[1], n))
    texts = (b"".join(text.encode() + END for text in part.read()) for part in (validation, test))
    runs = runs_of([np.frombuffer(text, np.uint8) for text in texts])
    train = Part(lambda: drop_runs(rest.read(), runs), rest.is_open)
    n_bytes = rest.n_bytes
    rates |= {"train_bytes": n_bytes, "train_bytes_cut": n_bytes - train.n_bytes}
    return Parts(train, validation, test, rates)


def _line_ends(texts: Iterable[str], places: list[int]) -> tuple[list[int], list[bool]]:
    """Move each character position in `places` to the end of its line.

    Returns (new positions, whether each of them is inside a document).
    """
    begin, moved, are_inside = 0, list(places), [False] * len(places)
    for text in texts:
        for i, place in enumerate(places):
            if 0 < (at := place - begin) < len(text):
                at = text.find("\n", at - 1) + 1 or at
                moved[i], are_inside[i] = begin + at, at < len(text)
        begin += len(text)
    return moved, are_inside


def _between(texts: Iterable[str], first: int, last: int) -> Iterator[str]:
    """Yield characters `first` to `last` of the concatenated `texts`, split at text boundaries."""
    begin = 0
    for text in texts:
        if part := text[max(first - begin, 0) : max(last - begin, 0)]:
            yield part
        begin += len(text)
