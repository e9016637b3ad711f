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

from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.study import Data

BUILT_IN = Path(__file__).with_name("tokenizers")
END_OF_DOCUMENT = "<|endofdocument|>"
# What stands for a character outside the vocabulary where one is replaced: the first known.
STAND_INS = "?_. "
NOT_HERE = 255


class Tokenizer(Protocol):
    """Text to token ids 0 to vocab_size - 1, and back; nothing is lost on the way."""

    @property
    def vocab_size(self) -> int:
        """Token ids."""
        ...

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
    def bytes_per_token(self) -> np.ndarray:
        """[V] how many UTF-8 bytes of text each token stands for; none for the end of document."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the ids of a text."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """Token ids, int64. Raises ParibusError for an unknown character."""
        ...

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        ...

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """Token ids, of `dtype`; ParibusError also where `text` cannot be had back from them."""
        ...

    def encode_documents(self, documents: Sequence[str]) -> np.ndarray:
        """All documents in one row of token ids; of several, each closed by its end."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of these ids."""
        ...


def tokenizer_of(data: Data, characters: str, ends: bool, folder: Path) -> Tokenizer:
    """The tokenizer that `data` names, for a text of these `characters`, in code-point order.

    `ends` says whether the text has several documents, each with an end; `folder` is where the
    tokenizer's path starts. Raises ParibusError for a file that cannot be read, is no byte-level
    BPE tokenizer, or has no end of document where one is needed.
    """
    if data.tokenizer == "character":
        return CharacterTokenizer(characters, ends)
    from paribus.engine.data.bpe import BpeTokenizer  # a library that other studies need not load

    if data.tokenizer == "byte":
        return BpeTokenizer.of_bytes()
    at = BUILT_IN / f"{data.tokenizer}.json" if data.tokenizer_file is None else None
    tokenizer = BpeTokenizer.read(at or folder / data.tokenizer)
    if ends:
        tokenizer.require_end_of_document()
    return tokenizer


def narrowest(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The type that token ids are stored in."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


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
        """The one for all characters of `documents`."""
        characters = "".join(sorted(set().union(*documents)))
        return cls(characters, has_end_of_document=len(documents) > 1)

    @property
    def vocab_size(self) -> int:
        """Characters, and the end of document where there is one."""
        return len(self.characters) + self.has_end_of_document

    @property
    def end_of_document(self) -> int | None:
        """The last id, where there are ends of document."""
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
    def bytes_per_token(self) -> np.ndarray:
        """[V] how many UTF-8 bytes of text each token stands for; none for the end of document."""
        lengths = [len(c.encode("utf-8", "surrogatepass")) for c in self.characters]
        return np.array(lengths + [0] * self.has_end_of_document)

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary in its order."""
        return digest(self.vocabulary)

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        return narrowest(self.vocab_size)

    @cached_property
    def _codes(self) -> np.ndarray:
        return _code_points(self.characters)

    @cached_property
    def _narrow(self) -> bytes:
        """The id of every code point below 256; NOT_HERE where it has none, or has this very id."""
        known = self._codes[self._codes < 256].tolist()
        table = bytearray([NOT_HERE]) * 256
        for i, code in enumerate(known):
            table[code] = i
        return bytes(table)

    @cached_property
    def _id_of(self) -> np.ndarray:
        """The id of every code point; no id at all for those that are not in the vocabulary."""
        ids = np.full(0x110000, np.iinfo(np.uint32).max, np.uint32)
        ids[self._codes] = np.arange(len(self._codes))
        return ids

    def encode(self, text: str) -> np.ndarray:
        """Token ids [len(text)], int64. Raises ParibusError for an unknown character."""
        return self._ids(text, "").astype(np.int64)

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """The same, of `dtype`; `where` is what an error calls the text."""
        return self._ids(text, f" ({where})")

    def _ids(self, text: str, where: str) -> np.ndarray:
        """Ids of `dtype`. A table of bytes gives nearly all, several times as fast as indices."""
        codes = _code_points(text)
        narrow = np.frombuffer(codes.astype(np.uint8).tobytes().translate(self._narrow), np.uint8)
        others = np.flatnonzero((codes > 255) | (narrow == NOT_HERE))
        exact = self._id_of[codes[others]]
        if exact.size and exact.max() >= len(self.characters):
            unknown = text[int(others[(exact >= len(self.characters)).argmax()])]
            raise ParibusError(
                f"character {unknown!r}{where} is not in the vocabulary of "
                f"{len(self.characters)} characters; leave it out"
            )
        ids = narrow.astype(self.dtype)
        ids[others] = exact
        return ids

    def encode_documents(self, documents: Sequence[str]) -> np.ndarray:
        """All documents in one row of token ids, each closed by its end-of-document token."""
        end = [] if self.end_of_document is None else [self.end_of_document]
        parts = [np.concatenate([self.encode(text), end]) for text in documents]
        return np.concatenate(parts).astype(self.dtype)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of these ids."""
        ids = np.asarray(ids, np.int64)
        if ids.size and ids.max() < len(self.characters):
            return self._codes[ids].tobytes().decode("utf-32-le", "surrogatepass")
        return "".join(map(self.vocabulary.__getitem__, ids.tolist()))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
