"""From a corpus to the tokens a study is trained and validated on, with their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from paribus.data.corpora import read_corpus
from paribus.data.token_classes import token_classes
from paribus.data.tokenizer import Tokenizer, tokenizer_of
from paribus.errors import ParibusError
from paribus.study import Data
from paribus.study.canonical import digest


@dataclass(frozen=True)
class Dataset:
    """The split text as token ids.

    Attributes:
        train: [n_train] token ids, the first part of the text.
        validation: [n_validation] token ids, the rest.
        tokenizer: what made them.
        n_documents: documents in the corpus.
        digests: SHA-256 of corpus, vocabulary (or the tokenizer's file), train and validation, in
            this order.
    """

    train: np.ndarray
    validation: np.ndarray
    tokenizer: Tokenizer
    n_documents: int
    digests: dict[str, str]

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @cached_property
    def token_classes(self) -> np.ndarray:
        """[V] the class of every token id, as an index into TOKEN_CLASSES."""
        return token_classes(self.tokenizer.vocabulary, self.tokenizer.end_of_document)

    @property
    def record(self) -> dict[str, object]:
        """What the records say of the data."""
        return {
            "n_documents": self.n_documents,
            "train_tokens": len(self.train),
            "validation_tokens": len(self.validation),
            "vocab_size": self.vocab_size,
            "digests": self.digests,
        }


def load_dataset(data: Data, folder: Path) -> Dataset:
    """Read, tokenize and split the corpus that `data` names, contiguously.

    `folder` is where relative paths start. Raises ParibusError where the text is missing, empty,
    not UTF-8, or too short for one window on each side of the split, and where the tokenizer cannot
    be read or loses text.
    """
    documents = list(read_corpus(data, folder))
    tokenizer = tokenizer_of(data, documents, folder)
    tokens = tokenizer.encode_documents(documents)
    split = int(len(tokens) * (1 - data.validation_fraction))
    train, validation = tokens[:split], tokens[split:]
    for part, ids in (("training", train), ("validation", validation)):
        if len(ids) < data.seq_len + 1:
            raise ParibusError(
                f"corpus '{data.corpus}' leaves {len(ids)} {part} tokens, fewer than one window of "
                f"seq_len + 1 = {data.seq_len + 1}; use more text or a shorter data.seq_len"
            )
    digests = {
        "corpus": corpus_digest(documents),
        "vocabulary": tokenizer.digest,
        "train": _tokens_digest(train),
        "validation": _tokens_digest(validation),
    }
    return Dataset(train, validation, tokenizer, len(documents), digests)


def corpus_digest(documents: Sequence[str]) -> str:
    """Of one document, the digest of its bytes; of several, of the list of their digests."""
    each = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in documents]
    return each[0] if len(each) == 1 else digest(each)


def _tokens_digest(ids: np.ndarray) -> str:
    return hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()
