"""Character tokenizer, and byte-level BPE from a Hugging Face `tokenizer.json`.

Byte-level BPE (Radford et al. 2019) is lossless, because tokens are byte strings. A character that
spans several tokens is counted for the token with its first byte.

Axis: V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paribus.digests import digest
from paribus.engine.data.corpora import read_pieces
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.untrusted_io import read_bytes

if TYPE_CHECKING:  # a library that other studies need not load
    from tokenizers import Tokenizer as HuggingFaceTokenizer

BUILT_IN = Path(__file__).with_name("tokenizers")
END_OF_DOCUMENT = "<|endofdocument|>"
# Names of the end of a document, in the order in which they are looked for: GPT-2, ours, BLOOM.
ENDS_OF_DOCUMENT = ("<|endoftext|>", END_OF_DOCUMENT, "</s>")
# What stands for a character outside the vocabulary where one is replaced: the first known.
STAND_INS = "?_. "
# The bytes that UTF-8 text has.
UTF8_BYTES = {bytes([byte]) for byte in range(0xF5) if byte not in (0xC0, 0xC1)}
SHOWN = 40  # characters of a text that an error shows
# A model has a row of weights for every id up to the largest; Gemma's tokenizer has 262,144.
MOST_TOKENS = 2**20
TOKEN_CLASSES = ("alphabetic", "numeric", "punctuation", "whitespace", "end-of-document")


@dataclass(frozen=True)
class Tokenizer:
    """Lossless map between text and token ids 0 to vocab_size - 1.

    Attributes:
        digest: SHA-256 digest of the vocabulary or tokenizer file.
        pieces: [V] UTF-8 bytes of each token.
        special: [V] whether each token is special, that is, represents no text.
        end_of_document: id of the end-of-document token, or None.
    """

    digest: str
    pieces: tuple[bytes, ...] = field(repr=False)
    special: tuple[bool, ...] = field(repr=False)
    end_of_document: int | None

    def encode(self, text: str) -> np.ndarray:
        """Return the token ids of `text`, int64. Raises ParibusError for an unknown character."""
        raise NotImplementedError

    def unknown_in(self, text: str) -> set[str]:
        """Return the characters in `text` that the tokenizer cannot encode."""
        return set()

    @property
    def vocab_size(self) -> int:
        """Number of token ids, including special tokens."""
        return len(self.pieces)

    @property
    def vocabulary(self) -> list[str]:
        """Decoded text of each token, [V], with U+FFFD for incomplete characters.

        U+FFFD is a symbol, so a token that contains nothing else is classified as punctuation.
        """
        return [piece.decode("utf-8", "replace") for piece in self.pieces]

    @property
    def characters_per_token(self) -> np.ndarray:
        """Number of characters whose first byte is in each token, [V], with 0 for special tokens.

        Counts are exact even if a character spans several tokens.
        """
        return self._per_token(lambda piece: sum(not 0x80 <= byte < 0xC0 for byte in piece))

    @property
    def bytes_per_token(self) -> np.ndarray:
        """Number of UTF-8 bytes in each token, [V], with 0 for special tokens."""
        return self._per_token(len)

    def _per_token(self, count: Callable[[bytes], int]) -> np.ndarray:
        parts = zip(self.pieces, self.special, strict=True)
        return np.array([0 if special else count(piece) for piece, special in parts])

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """Smallest integer type for all token ids, uint16 or uint32."""
        return np.uint16 if self.vocab_size <= 2**16 else np.uint32

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decode `ids` to text, dropping incomplete characters."""
        content = b"".join(map(self.pieces.__getitem__, np.asarray(ids, np.int64).tolist()))
        return content.decode("utf-8", "ignore")

    def documents(self, ids: np.ndarray) -> list[str]:
        """Decode `ids` and split the text at end-of-document tokens, dropping empty documents."""
        end = -1 if self.end_of_document is None else self.end_of_document
        parts = np.split(ids, np.flatnonzero(ids == end))
        return [text for part in parts if (text := self.decode(part[part != end]))]

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """Encode `text` and verify that decoding restores it.

        `where` identifies the text in error messages. Returns token ids of type `dtype`. Raises
        ParibusError if decoding fails to restore the text, or if the ids include the
        end-of-document token.
        """
        ids = self.encode(text)
        if self.end_of_document is not None and (ids == self.end_of_document).any():
            raise ParibusError(
                f"{where} contains {self.pieces[self.end_of_document].decode()!r}, which the "
                "tokenizer encodes as the end-of-document token; mark that token as special in the "
                "tokenizer file"
            )
        if self.decode(ids) != text:
            raise ParibusError(
                f"decoding the tokens of {where} does not restore its text, which begins with "
                f"{text[:SHOWN]!r}; use a tokenizer without a normalizer or prefix space, or "
                "normalize the text first"
            )
        return ids.astype(self.dtype)


def tokenizer_of(data: Data, characters: str, ends: bool, folder: Path) -> Tokenizer:
    """Return the tokenizer specified by `data`.

    Args:
        data: data section of the study.
        characters: vocabulary of a character tokenizer.
        ends: whether documents end with an end-of-document token.
        folder: folder against which relative paths are resolved.

    Raises ParibusError if a file cannot be read, is not a byte-level BPE tokenizer, or lacks a
    required end-of-document token.
    """
    if data.tokenizer == "character":
        return CharacterTokenizer.from_text(characters, ends)
    built_in = BUILT_IN / f"{data.tokenizer}.json"
    tokenizer = BpeTokenizer.read(
        built_in if data.tokenizer_file is None else folder / data.tokenizer
    )
    if ends and tokenizer.end_of_document is None:
        raise ParibusError(
            "a text with several documents requires an end-of-document token, but the tokenizer "
            f"file '{data.tokenizer}' has none of {', '.join(ENDS_OF_DOCUMENT)}; add one of these "
            "tokens to the file"
        )
    return tokenizer


def token_classes(vocabulary: Sequence[str], end_of_document: int | None) -> np.ndarray:
    """Return the class of every token id, [V] int64, as an index into TOKEN_CLASSES.

    A token with several kinds of characters has the class that comes first in TOKEN_CLASSES. For
    example, " the" is alphabetic and " ," is punctuation. Symbols count as punctuation, including
    U+FFFD, which represents an incomplete character.

    Args:
        vocabulary: decoded text of each id.
        end_of_document: id of the end-of-document token, or None.
    """
    classes = np.array([TOKEN_CLASSES.index(_class_of(text)) for text in vocabulary], np.int64)
    if end_of_document is not None:
        classes[end_of_document] = TOKEN_CLASSES.index("end-of-document")
    return classes


def _class_of(text: str) -> str:
    # In any script: str.isalpha and str.isnumeric follow Unicode's categories.
    if any(character.isalpha() for character in text):
        return "alphabetic"
    if any(character.isnumeric() for character in text):
        return "numeric"
    return "whitespace" if text.isspace() else "punctuation"


@dataclass(frozen=True)
class CharacterTokenizer(Tokenizer):
    """Tokenizer with one token per character, in code-point order.

    An end-of-document token is added only if there are several documents, so the ids for
    Shakespeare equal those of nanoGPT and char-rnn.
    """

    characters: str

    @classmethod
    def from_text(cls, text: str, ends: bool = False) -> CharacterTokenizer:
        """Build a tokenizer for the characters in `text`.

        With `ends`, the vocabulary includes an end-of-document token.
        """
        known = sorted(set(text))
        vocabulary = [*known, END_OF_DOCUMENT] if ends else known
        pieces = tuple(character.encode() for character in vocabulary)
        special = (False,) * len(known) + (True,) * ends
        end = len(known) if ends else None
        return cls(digest(vocabulary), pieces, special, end, "".join(known))

    def unknown_in(self, text: str) -> set[str]:
        """Return the characters in `text` that are not in the vocabulary."""
        return set(text).difference(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Return token ids [len(text)], int64. Raises ParibusError for an unknown character."""
        known, codes = _code_points(self.characters), _code_points(text)
        ids = np.searchsorted(known, codes)
        unknown = np.flatnonzero(known.take(ids, mode="clip") != codes)
        if len(unknown):
            raise ParibusError(
                f"character {text[unknown[0]]!r} is not in the vocabulary of {len(known)} "
                "characters; remove it from the text"
            )
        return ids


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


@dataclass(frozen=True)
class BpeTokenizer(Tokenizer):
    """Byte-level BPE tokenizer from a `tokenizer.json`, with the same ids as `tokenizers`.

    Counting and decoding use the bytes of each token, so they are exact and never normalize the
    text (see `encode_checked`). `end_of_document` is None if the file has none of ENDS_OF_DOCUMENT.
    `content` contains the bytes of the file.
    """

    content: bytes = field(repr=False)
    _tokenizer: HuggingFaceTokenizer

    @classmethod
    def read(cls, file: Path) -> BpeTokenizer:
        """Read a `tokenizer.json`. Raises ParibusError if it is missing or not byte-level BPE."""
        # A library that other studies need not load.
        from tokenizers import Tokenizer as HuggingFaceTokenizer

        missing = (
            f"the tokenizer file {file} does not exist; set data.tokenizer to a built-in "
            "tokenizer, such as 'character', or to the path of a tokenizer.json"
        )
        content = read_bytes(file, missing=missing)
        try:
            tokenizer = HuggingFaceTokenizer.from_buffer(content)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a plain Exception, or a panic of the library's Rust
            raise ParibusError(
                f"{file} is not a valid tokenizer.json of Hugging Face tokenizers ({error}); "
                "re-create it with Tokenizer.save",
                code="unreadable",
            ) from None
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        if not 0 < len(vocabulary) <= max(vocabulary.values()) + 1 <= MOST_TOKENS:
            raise ParibusError(
                f"the vocabulary of {file} is empty, repeats ids, or has ids above "
                f"{MOST_TOKENS - 1:,}; number its tokens consecutively from 0"
            )
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # A text that spells a special token is text, not the token.
        tokenizer.encode_special_tokens = True
        pieces, special = _pieces(vocabulary, tokenizer.get_added_tokens_decoder())
        end = next((vocabulary[name] for name in ENDS_OF_DOCUMENT if name in vocabulary), None)
        if not set(pieces) >= UTF8_BYTES:
            raise ParibusError(
                f"the vocabulary of {file} lacks some of the 256 bytes, so it cannot encode all "
                "text; use a byte-level BPE tokenizer such as GPT-2's, trained with "
                "ByteLevel.alphabet()",
                code="unsupported",
            )
        if end is not None:
            special[end] = True
        sha256 = hashlib.sha256(content).hexdigest()
        return cls(sha256, tuple(pieces), tuple(special), end, content, tokenizer)

    def encode(self, text: str) -> np.ndarray:
        """Return the token ids of `text`, int64."""
        # Faster than `encode` and sparing: no offsets.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, np.int64)


def _pieces(vocabulary: dict[str, int], added: dict[int, Any]) -> tuple[list[bytes], list[bool]]:
    """Return the bytes of each token id (b"" if unused), and whether each token is special."""
    byte_of = _byte_of_character()
    pieces = [b""] * (max(vocabulary.values()) + 1)
    special = [False] * len(pieces)
    for token, i in vocabulary.items():
        if i in added:
            pieces[i], special[i] = token.encode(), added[i].special
        elif all(character in byte_of for character in token):
            pieces[i] = bytes(byte_of[character] for character in token)
        else:
            # Not made of bytes: nothing that the byte-level pre-tokenizer gives can become it.
            pieces[i], special[i] = token.encode(), True
    return pieces, special


def _byte_of_character() -> dict[str, int]:
    """Return {printable character: byte}, the inverse of GPT-2's `bytes_to_unicode`."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(hidden)
    }


def train_tokenizer(data: Data, folder: Path, vocab_size: int, out: Path) -> None:
    """Train a BPE tokenizer with `vocab_size` tokens on a corpus, and write it to `out`.

    The tokenizer has all 256 bytes, an end-of-document token, GPT-2's pre-tokenizer and no
    normalizer, so it is lossless. The corpus is streamed. Raises ParibusError if the corpus cannot
    be read.
    """
    # Libraries that a command without a new tokenizer need not load.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        (piece.text for piece in read_pieces(data, folder)),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            show_progress=False,
            special_tokens=[ENDS_OF_DOCUMENT[0]],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    write_bytes(out, tokenizer.to_str(pretty=True).encode())


def train_missing(data: Data, folder: Path) -> None:
    """Train the tokenizer of `data` if its file is missing and `vocab_size` is set."""
    if data.vocab_size is not None and data.tokenizer_file is not None:
        out = folder / data.tokenizer_file
        if not out.exists():
            train_tokenizer(data, folder, data.vocab_size, out)
