"""Corpora, declared with `@corpus`.

A corpus is a function that maps a study's `data` table to an iterable of documents. A new file in
this folder is discovered automatically; a study sets a custom corpus with `data.corpus =
"ideas.py:my_corpus"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from paribus.declared import declared
from paribus.engine.data.pieces import Document, Piece, pieces
from paribus.engine.setting import Data
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Decorated, require_declared
from paribus.study.custom_code import load_own

# (the `data` table, the folder where its relative paths start) -> the files that decide the text
Files = Callable[[Data, Path], list[Path]]

# Keys of `data` that say where the text is; a corpus declares which of them it reads.
SOURCE_KEYS = ("path", "column", "name", "subset", "split", "revision")


@dataclass(frozen=True, eq=False, kw_only=True)
class Corpus(Decorated):
    """Decorator that declares a function as a corpus, `@corpus("name", reads=("path",))`.

    The function is called with the `data` table and the folder against which relative paths are
    resolved. It returns an iterable of documents, each a string or an iterable of strings.

    Attributes:
        reads: SOURCE_KEYS that the corpus uses; setting any other of them is an error.
        files: function that returns the files to watch for changes, or [] if the keys alone
            determine the text. The text is read again only if a file has changed. None means that
            changes can be detected only by reading the text.
    """

    reads: tuple[str, ...] = ()
    files: Files | None = None


corpus = Corpus


@cache
def all_corpora() -> dict[str, Corpus]:
    """Return the built-in corpora, keyed by name."""
    return declared(__name__, Corpus)


def find_corpus(data: Data, folder: Path) -> Corpus:
    """Return the built-in or custom corpus specified by `data`.

    Raises ParibusError for an unknown corpus, or if a key is set that the corpus does not use.
    """
    if ":" in data.corpus:
        result = _own(data.corpus, folder)
    else:
        result = require_declared(data.corpus, all_corpora(), "data.corpus", "corpus")
    for key in SOURCE_KEYS:
        value: Any = getattr(data, key)
        if value != Data.model_fields[key].default and key not in result.reads:
            readers = sorted(c.name for c in all_corpora().values() if key in c.reads)
            raise ParibusError(
                f"data.{key} = '{value}' has no effect with data.corpus = '{data.corpus}', because "
                f"only {', '.join(readers)} use this key; remove data.{key}, or change data.corpus"
            )
    return result


def _own(path: str, folder: Path) -> Corpus:
    """Load the custom corpus at the import path `path`."""
    own = load_own(path, f"data.corpus = '{path}'", "corpus", Corpus, folder)

    def read(data: Data, folder: Path) -> Iterator[Document]:
        with blamed(f"reading data.corpus = '{path}' failed"):
            for number, document in enumerate(own.function(data, folder), 1):
                if isinstance(document, bytes) or not isinstance(document, str | Iterable):
                    kind = type(document).__name__
                    raise TypeError(f"document {number} is {kind}, not str or an iterable of str")
                yield document

    return replace(own, function=read, files=None)


def read_pieces(data: Data, folder: Path) -> Iterator[Piece]:
    """Yield the pieces of all documents in the corpus specified by `data`.

    Raises ParibusError if the corpus cannot be read or has no text.
    """
    corpus = find_corpus(data, folder)
    is_empty = True
    for piece in pieces(corpus.function(data, folder)):
        try:
            piece.text.encode()
        except UnicodeEncodeError as error:
            raise ParibusError(
                f"document {piece.document + 1} of corpus '{data.corpus}' contains a lone "
                f"surrogate (\\u{ord(piece.text[error.start]):04x}), which is not a character; "
                "remove it",
                code="unreadable",
            ) from None
        is_empty = False
        yield piece
    if is_empty:
        raise ParibusError(
            f"corpus '{data.corpus}' contains no text; add text, or set another data.corpus",
            code="missing",
        )
