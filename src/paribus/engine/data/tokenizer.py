"""Tokenizers: of characters, and byte-level BPE from a Hugging Face `tokenizer.json`.

Byte-level (Radford et al. 2019), because then no text is lost: a token is a string of bytes, every
text is one too, and each character of it belongs to exactly one token, that of its first byte.

Axis: V vocabulary.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from paribus.digests import canonical_json, digest
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.untrusted_io import TOKENIZER_BYTES, parse_json, read_bytes

if TYPE_CHECKING:  # a library that other studies need not load
    from tokenizers import Tokenizer as HuggingFaceTokenizer

BUILT_IN = Path(__file__).with_name("tokenizers")
END_OF_DOCUMENT = "<|endofdocument|>"
# Names of the end of a document, in the order in which they are looked for: GPT-2, ours, BLOOM.
ENDS_OF_DOCUMENT = ("<|endoftext|>", END_OF_DOCUMENT, "</s>")
# What stands for a character outside the vocabulary where one is replaced: the first known.
STAND_INS = "?_. "
# Bytes that no UTF-8 text has.
NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
# Where the pre-tokenizer of GPT-2 begins a piece, whatever else it does: at white space after what
# is none. What stands between such places is tokenized by itself.
WORDS = re.compile(r"(?<=\S)(?=[ \t\r\n])")
MOST_KNOWN = 2**18  # words whose ids are kept: a text is tokenized five times as fast
SHOWN = 20  # characters of a text that an error shows
# A model has a row of weights for every id up to the largest; Gemma's tokenizer has 262,144.
MOST_TOKENS = 2**20
TOKEN_CLASSES = ("alphabetic", "numeric", "punctuation", "whitespace", "end-of-document")


class Tokenizer(Protocol):
    """Text to token ids 0 to vocab_size - 1, and back; nothing is lost on the way."""

    @property
    def vocab_size(self) -> int:
        """Token ids, special ones included."""
        ...

    @property
    def end_of_document(self) -> int | None:
        """The token between documents, where there is one."""
        ...

    @property
    def vocabulary(self) -> list[str]:
        """[V] the text of every token id."""
        ...

    @property
    def characters_per_token(self) -> np.ndarray:
        """[V] characters of text; none for the end of document."""
        ...

    @property
    def bytes_per_token(self) -> np.ndarray:
        """[V] UTF-8 bytes of text; none for the end of document."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the ids of a text."""
        ...

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """Return token ids, int64. Raises ParibusError for an unknown character."""
        ...

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """Return ids of `dtype`; ParibusError also where `text` cannot be had back from them.

        `where` is what an error calls the text.
        """
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of these ids."""
        ...


def tokenizer_of(data: Data, characters: str, ends: bool, folder: Path) -> Tokenizer:
    """Return the tokenizer that `data` names, for a text of these `characters`, in their order.

    `ends` says whether the text has several documents, each with an end; `folder` is where the
    tokenizer's path starts. Raises ParibusError for a file that cannot be read, is no byte-level
    BPE tokenizer, or has no end of document where one is needed.
    """
    if data.tokenizer == "character":
        return CharacterTokenizer(characters, ends)
    if data.tokenizer == "byte":
        return BpeTokenizer.of_bytes()
    at = BUILT_IN / f"{data.tokenizer}.json" if data.tokenizer_file is None else None
    tokenizer = BpeTokenizer.read(at or folder / data.tokenizer)
    if ends and tokenizer.end_of_document is None:
        raise ParibusError(
            f"several documents need an end-of-document token, and {tokenizer.file} has "
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


def _narrowest(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
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
        """Make the one for all characters of `documents`."""
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
        """[V] one each, none for the end of document."""
        return np.array([1] * len(self.characters) + [0] * self.has_end_of_document)

    @property
    def bytes_per_token(self) -> np.ndarray:
        """[V] UTF-8 bytes, none for the end of document."""
        lengths = [len(c.encode("utf-8", "surrogatepass")) for c in self.characters]
        return np.array(lengths + [0] * self.has_end_of_document)

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary in its order."""
        return digest(self.vocabulary)

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        return _narrowest(self.vocab_size)

    @cached_property
    def _id_of(self) -> np.ndarray:
        """The id of every code point; no id at all for those that are not in the vocabulary."""
        ids = np.full(0x110000, np.iinfo(np.uint32).max, np.uint32)
        ids[_code_points(self.characters)] = np.arange(len(self.characters))
        return ids

    def encode(self, text: str) -> np.ndarray:
        """Return token ids [len(text)], int64. Raises ParibusError for an unknown character."""
        return self._ids(text, "").astype(np.int64)

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """Return the same, of `dtype`; `where` is what an error calls the text."""
        return self._ids(text, f" ({where})").astype(self.dtype)

    def _ids(self, text: str, where: str) -> np.ndarray:
        ids = self._id_of.take(_code_points(text), mode="clip")  # no index is checked: none is off
        if ids.size and ids.max() >= len(self.characters):
            unknown = text[int((ids >= len(self.characters)).argmax())]
            raise ParibusError(
                f"character {unknown!r}{where} is not in the vocabulary of "
                f"{len(self.characters)} characters; leave it out"
            )
        return ids

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of these ids."""
        ids = np.asarray(ids, np.int64)
        if ids.size and ids.max() < len(self.characters):
            codes = _code_points(self.characters)[ids]
            return codes.tobytes().decode("utf-32-le", "surrogatepass")
        return "".join(map(self.vocabulary.__getitem__, ids.tolist()))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


@dataclass(frozen=True)
class BpeTokenizer:
    """The tokenizer of `file`. Its text is never normalised behind the user's back (see `check`).

    The ids are those of the library `tokenizers`. What is our own is the bytes of each token, for
    counts and for decoding exactly, and that each word of a text is asked for once.

    Attributes:
        file: where it was read from, for errors.
        content: of the file.
        digest: SHA-256 of it.
        pieces: [V] the bytes of each token id.
        special: [V] whether an id is a special token, which stands for no text.
        end_of_document: its id, or None where the file has none of ENDS_OF_DOCUMENT.
        words_are_apart: whether the text between two WORDS is surely tokenized by itself.
    """

    file: Path
    content: bytes = field(repr=False)
    digest: str
    pieces: tuple[bytes, ...]
    special: tuple[bool, ...]
    end_of_document: int | None
    words_are_apart: bool
    _tokenizer: HuggingFaceTokenizer

    @classmethod
    def read(cls, file: Path) -> BpeTokenizer:
        """Read `file`; ParibusError where it is missing or is no byte-level BPE tokenizer."""
        missing = (
            f"the tokenizer {file} does not exist; data.tokenizer is 'character' or the path of a "
            "tokenizer.json"
        )
        return cls.of(file, read_bytes(file, TOKENIZER_BYTES, missing=missing))

    @classmethod
    def of_bytes(cls) -> BpeTokenizer:
        """Make every byte a token with its own number, and the end of a document the next one."""
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        level |= {"use_regex": True}
        ends = {"id": 256, "content": ENDS_OF_DOCUMENT[0], "special": True}
        ends |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        spec = {
            "version": "1.0",
            "added_tokens": [ends],
            "normalizer": None,
            "pre_tokenizer": level,
            "post_processor": None,
            "decoder": level,
            "model": {"type": "BPE", "vocab": _byte_of_character(), "merges": []},
        }
        return cls.of(Path("byte"), canonical_json(spec).encode())

    @classmethod
    def of(cls, file: Path, content: bytes) -> BpeTokenizer:
        """Make the tokenizer that `content` is, of a file of this name; errors as in `read`."""
        from tokenizers.models import BPE

        tokenizer, spec = _parse(file, content)
        if not isinstance(tokenizer.model, BPE) or not _is_byte_level(spec.get("decoder")):
            raise ParibusError(
                f"{file} is no byte-level BPE tokenizer, and another one may lose text; use one "
                "whose model is BPE and whose decoder is ByteLevel, such as GPT-2's"
            )
        if tokenizer.model.dropout:
            raise ParibusError(
                f"{file} drops merges at random (dropout = {tokenizer.model.dropout:g}), and a "
                "text must always have the same ids; set its model.dropout to null"
            )
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # A text that spells a special token is text, not the token.
        tokenizer.encode_special_tokens = True
        pieces, special = _pieces(file, tokenizer)
        found = [i for name in ENDS_OF_DOCUMENT if (i := tokenizer.token_to_id(name)) is not None]
        end = found[0] if found else None
        if end is not None:
            special[end] = True
        sha256, apart = hashlib.sha256(content).hexdigest(), _words_are_apart(spec)
        return cls(file, content, sha256, tuple(pieces), tuple(special), end, apart, tokenizer)

    @property
    def vocab_size(self) -> int:
        """Token ids, special ones included."""
        return len(self.pieces)

    @property
    def vocabulary(self) -> list[str]:
        """The text of every token id; bytes that are part of a character read as U+FFFD.

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
        """[V] bytes of text; none for special tokens."""
        return self._per_token(len)

    def _per_token(self, of: Any) -> np.ndarray:
        parts = zip(self.pieces, self.special, strict=True)
        return np.array([0 if special else of(piece) for piece, special in parts])

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """The narrowest type that holds every id."""
        return _narrowest(self.vocab_size)

    def encode(self, text: str) -> np.ndarray:
        """Return ids, int64. Raises ParibusError for a character without bytes or tokens."""
        try:
            content = text.encode()
        except UnicodeEncodeError as error:
            raise ParibusError(
                f"character {text[error.start]!r} is half of a pair and no text; leave it out"
            ) from None
        unknown = self._unknown_bytes
        if unknown and len(content.translate(None, bytes(unknown))) < len(content):
            character = next(c for c in text if unknown.intersection(c.encode()))
            raise ParibusError(
                f"character {character!r} is not in the vocabulary of {self.file}, which has not "
                "all 256 bytes; leave it out, or train the tokenizer with ByteLevel.alphabet()"
            )
        return np.array(self._ids(text), np.int64)

    def encode_checked(self, text: str, where: str) -> np.ndarray:
        """Return the same, of `dtype`; ParibusError where `check` raises it."""
        ids = self.encode(text)
        self.check(text, ids, where)
        return ids.astype(self.dtype)

    def _ids(self, text: str) -> list[int]:
        """Return the library's ids. Where words are tokenized alone, each is asked for once."""
        if not self.words_are_apart:
            # Faster than `encode` and sparing: no offsets.
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
            return encoding.ids
        words, known = WORDS.split(text), self._known
        new = [word for word in dict.fromkeys(words) if word not in known]
        if len(known) + len(new) > MOST_KNOWN:
            known, new = {}, list(dict.fromkeys(words))
        found = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        known.update((word, one.ids) for word, one in zip(new, found, strict=True))
        return list(chain.from_iterable(map(known.__getitem__, words)))

    def check(self, text: str, ids: np.ndarray, where: str) -> None:
        """Raise ParibusError unless the `ids` of `text` decode to it, and hold no end inside."""
        if self.end_of_document is not None and (ids == self.end_of_document).any():
            raise ParibusError(
                f"{where} has the text {self.pieces[self.end_of_document].decode()!r}, which "
                f"{self.file} reads as the end of a document; mark the token as special in the file"
            )
        back = self.decode(ids)
        if back == text:
            return
        pairs = enumerate(zip(text, back, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(text), len(back)))
        raise ParibusError(
            f"{self.file} loses text: {where}, character {at + 1}: {text[at : at + SHOWN]!r} is "
            f"read as {back[at : at + SHOWN]!r}; use a tokenizer without normalizer and prefix "
            "space, or normalise the text first"
        )

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of `ids`; bytes that make no whole character are left out."""
        ids = np.asarray(ids, np.int64)
        lengths, starts, content = self._bytes
        n = lengths[ids]
        # Byte k of a token is the k-th after the token's start in `content`.
        places = np.repeat(starts[ids] - (np.cumsum(n) - n), n) + np.arange(n.sum())
        return content[places].tobytes().decode("utf-8", "ignore")

    @cached_property
    def _bytes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """([V] the length of each piece, [V] where it starts in, all pieces one after another)."""
        lengths = np.array([len(piece) for piece in self.pieces], np.int64)
        content = np.frombuffer(b"".join(self.pieces), np.uint8)
        return lengths, np.cumsum(lengths) - lengths, content

    @cached_property
    def _known(self) -> dict[str, list[int]]:
        return {}

    @cached_property
    def _unknown_bytes(self) -> frozenset[int]:
        alone = {piece[0] for piece in self.pieces if len(piece) == 1}
        return frozenset(range(256)) - alone - NEVER_IN_UTF8


def _parse(file: Path, content: bytes) -> tuple[HuggingFaceTokenizer, dict[str, Any]]:
    """Return the library's tokenizer of a file, and the file's own words."""
    from tokenizers import Tokenizer as HuggingFaceTokenizer

    spec = parse_json(content, str(file), "write it anew with Tokenizer.save")
    try:
        return HuggingFaceTokenizer.from_buffer(content), spec
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a plain Exception, or a panic of the library's Rust
        raise ParibusError(
            f"{file} is no tokenizer.json of Hugging Face tokenizers ({error}); "
            "write it anew with Tokenizer.save"
        ) from None


def _words_are_apart(spec: dict[str, Any]) -> bool:
    """Return whether nothing in the file looks beyond the pieces of GPT-2's pre-tokenizer."""
    pre = spec.get("pre_tokenizer") or {}
    is_gpt2 = pre.get("type") == "ByteLevel" and pre.get("use_regex", True)
    plain = not pre.get("add_prefix_space", True) and spec.get("normalizer") is None
    return bool(is_gpt2 and plain and all(t["special"] for t in spec.get("added_tokens") or ()))


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    if decoder is None:
        return False
    return decoder["type"] == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders", ())))


def _pieces(file: Path, tokenizer: HuggingFaceTokenizer) -> tuple[list[bytes], list[bool]]:
    """Return the bytes of each token id, and whether it is special; unused ids have none."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise ParibusError(f"{file} has an empty vocabulary; train the tokenizer on some text")
    if max(vocabulary.values()) >= MOST_TOKENS:
        raise ParibusError(
            f"{file} has the token id {max(vocabulary.values())}, and ids must be below "
            f"{MOST_TOKENS:,}; number its tokens from 0 on"
        )
    added = tokenizer.get_added_tokens_decoder()
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
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }
