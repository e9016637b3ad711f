"""Splitting of documents into pieces of bounded length, to bound memory use.

Splits can change the tokens of a BPE tokenizer, so they depend only on the text, not on how it is
read or encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

PIECE_CHARACTERS = 2**20
"""Minimum length of a piece, in characters, except a document's last one."""

# Before white space between two words. The pre-tokenizers of GPT-2, GPT-4 and Llama 3 begin a piece
# of their own there, so that the tokens are those of the whole text. An underscore is of no word:
# Llama 3's has the ends of lines after it in one piece with it.
_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[ \n](?=\w)")

# A text, or its parts in their order.
Document = str | Iterable[str]


class Piece(NamedTuple):
    """Part of a document.

    Attributes:
        text: text of the piece, at least one character.
        document: 0-based index of the document among all nonempty documents.
        is_last: whether this is the last piece of the document.
    """

    text: str
    document: int
    is_last: bool


def pieces(texts: Iterable[Document]) -> Iterator[Piece]:
    """Yield the pieces of all documents in `texts`, skipping empty documents."""
    number = 0
    for document in texts:
        before = ""
        for text in cut((document,) if isinstance(document, str) else document):
            if before:
                yield Piece(before, number, False)
            before = text
        if before:
            yield Piece(before, number, True)
            number += 1


def documents(parts: Iterable[Piece]) -> Iterator[str]:
    """Join the pieces of each document, and yield the documents."""
    for _, document in groupby(parts, key=lambda piece: piece.document):
        yield "".join(piece.text for piece in document)


def cut(texts: Iterable[str], length: int = PIECE_CHARACTERS) -> Iterator[str]:
    """Split the concatenated `texts` into pieces of `length` to 2 * `length` characters.

    A piece ends between two words if possible. The last piece may be shorter.
    """
    waiting = ""
    for text in texts:
        for start in range(0, len(text), length):
            waiting += text[start : start + length]
            # What a cut depends on: twice the length, and the character after it.
            while len(waiting) > 2 * length:
                piece, waiting = _split(waiting, length)
                yield piece
    while waiting:
        piece, waiting = _split(waiting, length)
        yield piece


def _split(text: str, length: int) -> tuple[str, str]:
    """Split `text` at the first allowed position, from `length` to 2 * `length`."""
    # One character more, which the rule looks at.
    match = _BETWEEN_WORDS.search(text, length, 2 * length + 1)
    place = min(match.start() if match else len(text), 2 * length)
    return text[:place], text[place:]
