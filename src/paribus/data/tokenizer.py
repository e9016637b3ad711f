"""What the house needs of a tokenizer, and the character tokenizer.

Another tokenizer is a file (see `bpe.py`): fixed, and part of what a study is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from paribus.errors import ParibusError
from paribus.study import Data
from paribus.study.canonical import digest

END_OF_DOCUMENT = "<|endofdocument|>"
# What stands for a character outside the vocabulary where one is replaced: the first known.
STAND_INS = "?_. "


class Tokenizer(Protocol):
    """Text to token ids 0 to vocab_size - 1, and back; nothing is lost on the way."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def end_of_document(self) -> int | None:
        """The token between documents, where there is one."""
        ...

    @property
    def vocabulary(self) -> list[str]:
        """The text of every token id."""
        ...

    @property
    def characters_per_token(self) -> np.ndarray:
        """[V] how many characters of text each token stands for; none for the end of document."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the ids of a text."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """Token ids, int64. Raises ParibusError for an unknown character."""
        ...

    def encode_documents(self, documents: Sequence[str]) -> np.ndarray:
        """All documents in one row of token ids; of several, each closed by its end."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str: ...


def tokenizer_of(data: Data, documents: Sequence[str], folder: Path) -> Tokenizer:
    """The tokenizer that `data` names, for `documents`; `folder` is where its path starts.

    Raises ParibusError for a file that cannot be read or is no byte-level BPE tokenizer.
    """
    if data.tokenizer == "character":
        return CharacterTokenizer.of(documents)
    from paribus.data.bpe import BpeTokenizer  # a library that other studies need not load

    return BpeTokenizer.read(folder / data.tokenizer)


@dataclass(frozen=True)
class CharacterTokenizer:
    """Characters in code-point order, then the end-of-document token where there are documents.

    A single text has no ends of document, and so no token for them: on Shakespeare the ids are
    those of nanoGPT and char-rnn.
    """

    characters: str
    has_end_of_document: bool

    @classmethod
    def of(cls, documents: Sequence[str]) -> CharacterTokenizer:
        characters = "".join(sorted(set().union(*documents)))
        return cls(characters, has_end_of_document=len(documents) > 1)

    @property
    def vocab_size(self) -> int:
        return len(self.characters) + self.has_end_of_document

    @property
    def end_of_document(self) -> int | None:
        return len(self.characters) if self.has_end_of_document else None

    @property
    def vocabulary(self) -> list[str]:
        """The text of every token id."""
        return [*self.characters, *([END_OF_DOCUMENT] if self.has_end_of_document else [])]

    @property
    def characters_per_token(self) -> np.ndarray:
        """[V] how many characters of text each token stands for; none for the end of document."""
        return np.array([1] * len(self.characters) + [0] * self.has_end_of_document)

    @property
    def digest(self) -> str:
        return digest(self.vocabulary)

    @cached_property
    def _codes(self) -> np.ndarray:
        return _code_points(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Token ids [len(text)], int64. Raises ParibusError for an unknown character."""
        codes = _code_points(text)
        ids = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        unknown = self._codes[ids] != codes
        if unknown.any():
            raise ParibusError(
                f"character {text[int(unknown.argmax())]!r} is not in the vocabulary of "
                f"{len(self.characters)} characters; leave it out"
            )
        return ids

    def encode_documents(self, documents: Sequence[str]) -> np.ndarray:
        """All documents in one row of token ids, each closed by its end-of-document token."""
        dtype = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        end = [] if self.end_of_document is None else [self.end_of_document]
        parts = [np.concatenate([self.encode(text), end]).astype(dtype) for text in documents]
        return np.concatenate(parts)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return "".join(map(self.vocabulary.__getitem__, np.asarray(ids).tolist()))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
