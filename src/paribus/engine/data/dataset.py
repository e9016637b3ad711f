"""Tokenized training and validation text of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path

import numpy as np

from paribus.digests import digest
from paribus.engine.data.cache import cached_tokens
from paribus.engine.data.order import Mixture, Windows, document_places
from paribus.engine.data.source import Scan
from paribus.engine.data.split import TEST, VALIDATION, Rates, SealedPart, Texts
from paribus.engine.data.tokenizer import Tokenizer, token_classes
from paribus.engine.data.tokens import Tokens, chunks, tokens_digest
from paribus.engine.setting import CORPUS, Data
from paribus.errors import ParibusError


@dataclass(frozen=True)
class Dataset:
    """Tokenized training and validation text of a study.

    Attributes:
        train: [n_train] token ids, memory-mapped from the cache. The sources of a mixture are
            concatenated.
        validation: [n_validation] token ids, also memory-mapped.
        tokenizer: tokenizer used for all texts.
        windows: starts and order of the training windows.
        n_documents: number of documents in the corpus.
        digests: SHA-256 digests of the corpus, the vocabulary (or tokenizer file), the training and
            validation tokens, the validation text, the sources of a mixture, and the test text if
            there is one.
        sources: mixture share and size of each training text, keyed by source.
        held_out: digest and counts of the validation text.
        test: test text, not readable before the verdict; None if the study has none.
        deduplicated: counts of all text and of text removed by deduplication, or {} without
            deduplication.
    """

    train: Tokens
    validation: Tokens
    tokenizer: Tokenizer
    windows: Windows | Mixture
    n_documents: int
    digests: dict[str, str]
    sources: dict[str, TrainingText]
    held_out: Scan
    test: SealedPart | None
    deduplicated: Rates

    @property
    def vocab_size(self) -> int:
        """Number of token ids in the vocabulary."""
        return self.tokenizer.vocab_size

    @property
    def bytes_per_token(self) -> float:
        """Mean number of UTF-8 bytes per training token, including end-of-document tokens."""
        return sum(each.share * each.n_bytes / each.n_tokens for each in self.sources.values())

    @cached_property
    def token_classes(self) -> np.ndarray:
        """Class of each token id, [V], as an index into TOKEN_CLASSES."""
        return token_classes(self.tokenizer.vocabulary, self.tokenizer.end_of_document)

    @property
    def record(self) -> dict[str, object]:
        """Sizes and digests of the data, as stored in trial.json."""
        record: dict[str, object] = {
            "n_documents": self.n_documents,
            "train_tokens": len(self.train),
            "train_bytes": sum(each.n_bytes for each in self.sources.values()),
            "bytes_per_token": self.bytes_per_token,
            "validation_tokens": len(self.validation),
            "validation_bytes": self.held_out.n_bytes,
            "vocab_size": self.vocab_size,
            "digests": self.digests,
        }
        if len(self.sources) > 1:
            record["sources"] = {name: asdict(each) for name, each in self.sources.items()}
        return record | ({"deduplicated": self.deduplicated} if self.deduplicated else {})


@dataclass(frozen=True)
class TrainingText:
    """Mixture share and size of the training text from one source."""

    share: float  # of the training windows
    n_tokens: int
    n_bytes: int


def load_dataset(data: Data, folder: Path) -> Dataset:
    """Read, split and tokenize the corpus and all other texts of a study.

    The corpus is split into training, validation and test text, in this order, unless validation or
    test text are separate files. Relative paths are resolved against `folder`. Raises ParibusError
    if a text is missing, empty, not UTF-8 or too short for one window, or if the tokenizer cannot
    be read or is lossy.
    """
    texts = Texts.read(data, folder)
    parts, rates = texts.split()
    tokenizer, held_out, test = texts.tokenizer, parts[VALIDATION].scan, None
    validation, validation_digest = texts.tokens(parts[VALIDATION], VALIDATION)
    if data.validation_tokens is not None and data.validation_tokens < len(validation):
        validation = validation[: data.validation_tokens]
        validation_digest = tokens_digest(validation)
    _require_window(validation, data, VALIDATION)
    train, hashes, windows = {}, {}, {}
    for name in data.shares:
        ids, hashes[name] = texts.tokens(parts[name], name)
        _require_window(ids, data, "training", name)
        places = None
        if data.pack == "documents":
            places = document_places(ids, tokenizer.end_of_document, data.seq_len)
        train[name], windows[name] = ids, Windows(len(ids), data.seq_len, data.order, places)
    digests = {
        "corpus": texts.scans[CORPUS].digest,
        "vocabulary": tokenizer.digest,
        "train": next(iter(hashes.values())) if len(hashes) == 1 else digest(hashes),
        "validation": validation_digest,
        "validation_text": held_out.digest,
    }
    digests |= {f"source {name}": texts.scans[name].digest for name in data.other_sources}
    if TEST in parts:
        test = SealedPart(parts[TEST].scan, lambda: texts.tokens(parts[TEST], TEST)[0])
        _require_text(test.text, data)
        digests["test"] = test.text.digest
    order: Windows | Mixture = next(iter(windows.values()))
    if data.mixture:
        edges = np.cumsum([0, *map(len, train.values())]).tolist()
        order = Mixture(windows, data.mixture, dict(zip(windows, edges, strict=False)))
    return Dataset(
        _join(train, hashes),
        validation,
        tokenizer,
        order,
        texts.scans[CORPUS].n_documents,
        digests,
        {
            name: TrainingText(share, len(train[name]), parts[name].scan.n_bytes)
            for name, share in data.shares.items()
        },
        held_out,
        test,
        {key: sum(each[key] for each in rates) for key in rates[0]} if rates else {},
    )


def _require_window(tokens: Tokens, data: Data, part: str, source: str = CORPUS) -> None:
    """Raise ParibusError if there are too few `tokens` for one window."""
    if len(tokens) < data.seq_len + 1:
        text = f"corpus '{data.corpus}'" if source == CORPUS else f"source '{source}'"
        raise ParibusError(
            f"{text} has {len(tokens)} {part} tokens with data.deduplicate = "
            f"'{data.deduplicate}', but one window needs data.seq_len + 1 = {data.seq_len + 1}; "
            "add text or reduce data.seq_len",
            code="too_few",
        )


def _require_text(test: Scan, data: Data) -> None:
    """Raise ParibusError if the test text is certainly too short for one window.

    The text must not be tokenized before the verdict, so tokens are bounded by bytes: each has at
    least one byte or ends a document.
    """
    if test.n_bytes + test.n_documents <= data.seq_len:
        raise ParibusError(
            f"the test text ({test.n_bytes} bytes) is too short for one window of data.seq_len + 1 "
            f"= {data.seq_len + 1} tokens; increase data.test_fraction, or set data.test_path to a "
            "longer text",
            code="too_few",
        )


def _join(texts: Mapping[str, Tokens], hashes: Mapping[str, str]) -> Tokens:
    """Concatenate the tokens of all sources, memory-mapped from the cache.

    Args:
        texts: tokens, keyed by source.
        hashes: digests of the tokens, keyed by source.
    """
    parts = list(texts.values())
    if len(parts) == 1:
        return parts[0]
    joined = partial(chain.from_iterable, map(chunks, parts))
    return cached_tokens({"joined": list(hashes.values())}, joined, parts[0].dtype)[0]
