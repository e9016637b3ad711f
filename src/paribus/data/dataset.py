"""From a corpus to the tokens a study is trained and validated on, with their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from paribus.data.order import Windows, document_places
from paribus.data.sealed import SealedPart
from paribus.data.shards import sharded
from paribus.data.split import Texts, part_digest
from paribus.data.token_classes import token_classes
from paribus.data.tokenizer import Tokenizer
from paribus.data.tokens import ShardedTokens, Tokens, part
from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.study import Data


@dataclass(frozen=True)
class Dataset:
    """The split text as token ids.

    Attributes:
        train: [n_train] token ids, the first part of the text: an array, or shards of the cache.
        validation: [n_validation] token ids, the rest; the same.
        tokenizer: what made them.
        windows: where training windows begin, and in which order they come.
        n_documents: documents in the corpus.
        digests: SHA-256 of corpus, vocabulary (or the tokenizer's file), train, validation and,
            where there is one, the test part, in this order.
        test: the sealed part, where the study has one.
        deduplicated: what was taken out; empty where nothing was looked for.
        is_one_text: whether validation goes on where train ends.
    """

    train: Tokens
    validation: Tokens
    tokenizer: Tokenizer
    windows: Windows
    n_documents: int
    digests: dict[str, str]
    test: SealedPart | None = None
    deduplicated: dict[str, int] = field(default_factory=dict)
    is_one_text: bool = True

    @property
    def vocab_size(self) -> int:
        """Token ids of the tokenizer."""
        return self.tokenizer.vocab_size

    @cached_property
    def token_classes(self) -> np.ndarray:
        """[V] the class of every token id, as an index into TOKEN_CLASSES."""
        return token_classes(self.tokenizer.vocabulary, self.tokenizer.end_of_document)

    @property
    def record(self) -> dict[str, object]:
        """What the records say of the data."""
        found: dict[str, object] = {
            "n_documents": self.n_documents,
            "train_tokens": len(self.train),
            "validation_tokens": len(self.validation),
            "vocab_size": self.vocab_size,
            "digests": self.digests,
        }
        return found | ({"deduplicated": self.deduplicated} if self.deduplicated else {})


def load_dataset(data: Data, folder: Path) -> Dataset:
    """Read, tokenize and split the corpus that `data` names.

    Training, validation and test text follow one another in the corpus, or are files of their own.
    `folder` is where relative paths start. Raises ParibusError where the text is missing, empty,
    not UTF-8, or too short for one window on each side of the split, and where the tokenizer cannot
    be read or loses text.
    """
    texts = Texts.read(data, folder)
    train, validation, test, rates = texts.split()
    if data.validation_tokens is not None:
        validation = part(validation, 0, min(data.validation_tokens, len(validation)))
    for name, ids in (("training", train), ("validation", validation)):
        if len(ids) < data.seq_len + 1:
            raise ParibusError(
                f"corpus '{data.corpus}' leaves {len(ids)} {name} tokens, fewer than one window of "
                f"seq_len + 1 = {data.seq_len + 1}; use more text or a shorter data.seq_len"
            )
    digests = {
        "corpus": texts.found["corpus"].digest,
        "vocabulary": texts.tokenizer.digest,
        "train": part_digest(train),
        "validation": part_digest(validation),
    }
    if test is not None:
        digests["test"] = test.digest
    windows = windows_of(train, texts.tokenizer.end_of_document, data, digests["train"])
    return Dataset(
        train,
        validation,
        texts.tokenizer,
        windows,
        texts.found["corpus"].n_documents,
        digests,
        test,
        rates,
        is_one_text=data.validation_path is None and data.deduplicate == "none",
    )


def windows_of(train: Tokens, end: int | None, data: Data, train_digest: str) -> Windows:
    """The windows of the training text `train`, whose digest is `train_digest`."""
    places: Tokens | None = None
    if data.pack == "documents":

        def make() -> Iterator[np.ndarray]:
            return document_places(train, end, data.seq_len)

        if isinstance(train, ShardedTokens):
            about = {"places in": train_digest, "seq_len": data.seq_len, "end": end}
            places = sharded(about, make, np.dtype("<u8"))
        else:
            places = np.concatenate(list(make()))
    return Windows(len(train), data.seq_len, data.order, places)


def corpus_digest(documents: Sequence[str]) -> str:
    """Of one document, the digest of its bytes; of several, of the list of their digests."""
    each = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in documents]
    return each[0] if len(each) == 1 else digest(each)
