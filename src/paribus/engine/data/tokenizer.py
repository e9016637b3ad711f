"""Tokenizers: of characters, and byte-level BPE from a Hugging Face `tokenizer.json`.

Byte-level (Radford et al. 2019), because then no text is lost: a token is a string of bytes, every
text is one too, and each character of it belongs to exactly one token, that of its first byte.

Axis: V vocabulary.
"""

from __future__ import annotations

import hashlib
import logging
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
from paribus.untrusted_io import TOKENIZER_BYTES, read_bytes

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
    """Text to token ids 0 to vocab_size - 1, and back; nothing is lost on the way.

    Attributes:
        digest: SHA-256 of what decides the ids of a text.
        pieces: [V] the bytes of each token id, in UTF-8.
        special: [V] whether an id is a special token, which stands for no text.
        end_of_document: the token between documents, where there is one.
    """

    digest: str
    pieces: tuple[bytes, ...] = field(repr=False)
    special: tuple[bool, ...] = field(repr=False)
    end_of_document: int | None

    def encode(self, text: str) -> np.ndarray:
        """Return token ids, int64. Raises ParibusError for an unknown character."""
        raise NotImplementedError

    def unknown_in(self, text: str) -> set[str]:
        """Return the characters of `text` that have no id."""
        return set()

    @property
    def vocab_size(self) -> int:
        """Token ids, special ones included."""
        return len(self.pieces)

    @property
    def vocabulary(self) -> list[str]:
        """[V] the text of every token id; bytes that are part of a character read as U+FFFD.

        That is a symbol, and so a token of such bytes alone is of the class punctuation.
        """
        return [piece.decode("utf-8", "replace") for piece in self.pieces]

    @property
    def characters_per_token(self) -> np.ndarray:
        """[V] how many characters begin in each token; none for special tokens.

        Exact for any text: a character has one first byte, whichever tokens its bytes are in.
        """
        return self._per_token(lambda piece: sum(not 0x80 <= byte < 0xC0 for byte in piece))

    @property
    def bytes_per_token(self) -> np.ndarray:
        """[V] UTF-8 bytes of text; none for special tokens."""
        return self._per_token(len)

    def _per_token(self, count: Callable[[bytes], int]) -> np.ndarray:
        parts = zip(self.pieces, self.special, strict=True)
        return np.array([0 if special else count(piece) for piece, special in parts])

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        return np.uint16 if self.vocab_size <= 2**16 else np.uint32

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of `ids`; bytes that make no whole character are left out."""
        content = b"".join(map(self.pieces.__getitem__, np.asarray(ids, np.int64).tolist()))
        return content.decode("utf-8", "ignore")

    def documents(self, ids: np.ndarray) -> list[str]:
        """Return the documents that `ids` are of, without their ends; none is empty."""
        end = self.end_of_document
        ends = np.zeros(0, np.int64) if end is None else np.flatnonzero(ids == end)
        # Where documents begin once their ends are taken out.
        starts = ends - np.arange(len(ends))
        texts = (self.decode(part) for part in np.split(np.delete(ids, ends), starts))
        return [text for text in texts if text]

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """Return ids of `dtype`; ParibusError unless they decode to `text`, with no end inside.

        `where` is what an error calls the text.
        """
        ids = self.encode(text)
        if self.end_of_document is not None and (ids == self.end_of_document).any():
            raise ParibusError(
                f"{where} has the text {self.pieces[self.end_of_document].decode()!r}, which the "
                "tokenizer reads as the end of a document; mark the token as special in its file"
            )
        if self.decode(ids) != text:
            raise ParibusError(
                f"the tokenizer loses text of {where}, which begins with {text[:SHOWN]!r}; use a "
                "tokenizer without normalizer and prefix space, or normalise the text first"
            )
        return ids.astype(self.dtype)


def tokenizer_of(data: Data, characters: str, ends: bool, folder: Path) -> Tokenizer:
    """Return the tokenizer that `data` names, for a text of these `characters`, in their order.

    `ends` says whether the text has several documents, each with an end; `folder` is where the
    tokenizer's path starts. Raises ParibusError for a file that cannot be read, is not a byte-level
    BPE tokenizer, or has no end of document where one is needed.
    """
    if data.tokenizer == "character":
        return CharacterTokenizer.of([characters], ends)
    built_in = BUILT_IN / f"{data.tokenizer}.json"
    tokenizer = BpeTokenizer.read(
        built_in if data.tokenizer_file is None else folder / data.tokenizer
    )
    if ends and tokenizer.end_of_document is None:
        raise ParibusError(
            "several documents need an end-of-document token, and the file of data.tokenizer has "
            f"none of {', '.join(ENDS_OF_DOCUMENT)}; add one to it"
        )
    return tokenizer


def token_classes(vocabulary: Sequence[str], end_of_document: int | None) -> np.ndarray:
    """Return [V] the class of every token id, as an index into TOKEN_CLASSES, int64.

    `vocabulary` is the decoded text of each id; a token of several characters (BPE) has the class
    of the first kind that it contains, in the order of TOKEN_CLASSES, so that " the" is alphabetic
    and " ," punctuation. Symbols count as punctuation, and so does U+FFFD, which is how part of a
    character reads.
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
    """Characters in code-point order, then the end-of-document token where there are documents.

    A single text has no ends of document, and so no token for them: on Shakespeare the ids are
    those of nanoGPT and char-rnn.
    """

    characters: str

    @classmethod
    def of(cls, documents: Sequence[str], ends: bool | None = None) -> CharacterTokenizer:
        """Make the one for all characters of `documents`, and by default for ends of several."""
        known = sorted(set().union(*documents))
        ends = len(documents) > 1 if ends is None else ends
        vocabulary = [*known, END_OF_DOCUMENT] if ends else known
        pieces = tuple(text.encode() for text in vocabulary)
        special = (False,) * len(known) + (True,) * ends
        end = len(known) if ends else None
        return cls(digest(vocabulary), pieces, special, end, "".join(known))

    def unknown_in(self, text: str) -> set[str]:
        """Return the characters of `text` that have no id."""
        return set(text).difference(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Return token ids [len(text)], int64. Raises ParibusError for an unknown character."""
        known, codes = _code_points(self.characters), _code_points(text)
        ids = np.searchsorted(known, codes)
        unknown = np.flatnonzero(known.take(ids, mode="clip") != codes)
        if len(unknown):
            raise ParibusError(
                f"character {text[unknown[0]]!r} is not in the vocabulary of {len(known)} "
                "characters; leave it out"
            )
        return ids


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


@dataclass(frozen=True)
class BpeTokenizer(Tokenizer):
    """The tokenizer in `content`, whose ids are those of the library `tokenizers`.

    What is our own is the bytes of each token, for counts and for decoding exactly: its text is
    never normalised behind the user's back (see `encode_checked`). `end_of_document` is None where
    the file has none of ENDS_OF_DOCUMENT.
    """

    content: bytes = field(repr=False)
    _tokenizer: HuggingFaceTokenizer

    @classmethod
    def read(cls, file: Path) -> BpeTokenizer:
        """Read `file`. Raises ParibusError where it is missing or is not a tokenizer."""
        # A library that other studies need not load.
        from tokenizers import Tokenizer as HuggingFaceTokenizer

        missing = (
            f"the tokenizer {file} does not exist; data.tokenizer is 'character' or the path of a "
            "tokenizer.json"
        )
        content = read_bytes(file, TOKENIZER_BYTES, missing=missing)
        try:
            tokenizer = HuggingFaceTokenizer.from_buffer(content)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a plain Exception, or a panic of the library's Rust
            raise ParibusError(
                f"{file} is not a tokenizer.json of Hugging Face tokenizers ({error}); "
                "write it anew with Tokenizer.save",
                code="unreadable",
            ) from None
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        if not 0 < len(vocabulary) <= max(vocabulary.values()) + 1 <= MOST_TOKENS:
            raise ParibusError(
                f"{file} must have at least one token, and ids below {MOST_TOKENS:,}; number its "
                "tokens from 0 on"
            )
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # A text that spells a special token is text, not the token.
        tokenizer.encode_special_tokens = True
        pieces, special = _pieces(vocabulary, tokenizer.get_added_tokens_decoder())
        end = next((vocabulary[name] for name in ENDS_OF_DOCUMENT if name in vocabulary), None)
        if not set(pieces) >= UTF8_BYTES:
            raise ParibusError(
                f"{file} has not all 256 bytes in its vocabulary, and would lose text; use a "
                "byte-level BPE tokenizer such as GPT-2's, trained with ByteLevel.alphabet()",
                code="unsupported",
            )
        if end is not None:
            special[end] = True
        sha256 = hashlib.sha256(content).hexdigest()
        return cls(sha256, tuple(pieces), tuple(special), end, content, tokenizer)

    def encode(self, text: str) -> np.ndarray:
        """Return ids, int64."""
        # Faster than `encode` and sparing: no offsets.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, np.int64)


def _pieces(vocabulary: dict[str, int], added: dict[int, Any]) -> tuple[list[bytes], list[bool]]:
    """Return the bytes of each token id, and whether it is special; unused ids have none."""
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
    """Return GPT-2's spelling of bytes as printable characters (`bytes_to_unicode` there)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(hidden)
    }


def train_tokenizer(data: Data, folder: Path, vocab_size: int, out: Path) -> None:
    """Make a tokenizer of `vocab_size` tokens from the corpus that `data` names, in the file `out`.

    It has all 256 bytes, an end-of-document token, GPT-2's pre-tokenizer and no normalizer, so that
    no text is lost. The corpus is streamed. Raises ParibusError for a corpus that cannot be read.
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
    logging.getLogger("paribus").warning(
        "trained %s: %d tokens, from the corpus %s", out, tokenizer.get_vocab_size(), data.corpus
    )


def train_missing(data: Data, folder: Path) -> None:
    """Train the tokenizer file that `data` names with `vocab_size`, unless it exists."""
    if data.vocab_size is not None and data.tokenizer_file is not None:
        out = folder / data.tokenizer_file
        if not out.exists():
            train_tokenizer(data, folder, data.vocab_size, out)
