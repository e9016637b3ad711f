"""Corpora: one file each, declared with `@corpus`.

A corpus is a function from the `data` table of a study to an iterator of documents. A new file in
this folder is found by its name; a study names a custom corpus by import path, `data.corpus =
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
    """Declares a function as a corpus: `@corpus("name", reads=("path",))`.

    (the `data` table, the folder where its relative paths start) -> documents, each a string or, if
    long, an iterable of its parts.

    Attributes:
        reads: the SOURCE_KEYS that it uses; setting any other key is an error.
        files: returns the files that determine the text together with the keys, an empty list if
            the keys alone do. The text is read again only if a file has changed. None if only
            reading the text can show a change.
    """

    reads: tuple[str, ...] = ()
    files: Files | None = None


corpus = Corpus


@cache
def all_corpora() -> dict[str, Corpus]:
    """Return every corpus of this folder, by name."""
    return declared(__name__, Corpus)


def find_corpus(data: Data, folder: Path) -> Corpus:
    """Return the corpus that `data` names.

    Raises ParibusError for an unknown corpus, and for keys that it does not use.
    """
    if ":" in data.corpus:
        result = _own(data.corpus, folder)
    else:
        result = require_declared(data.corpus, all_corpora(), "data.corpus", "corpus", __name__)
    for key in SOURCE_KEYS:
        value: Any = getattr(data, key)
        if value != Data.model_fields[key].default and key not in result.reads:
            readers = sorted(c.name for c in all_corpora().values() if key in c.reads)
            raise ParibusError(
                f"data.{key} = '{value}' is only read by the corpora {', '.join(readers)}, "
                f"and data.corpus is '{data.corpus}'; drop one of them"
            )
    return result


def _own(path: str, folder: Path) -> Corpus:
    """Load a custom corpus by import path."""
    own = load_own(path, f"data.corpus = '{path}'", "corpus", Corpus, folder)

    def read(data: Data, folder: Path) -> Iterator[Document]:
        with blamed(f"data.corpus = '{path}' fails"):
            for number, document in enumerate(own.function(data, folder), 1):
                if isinstance(document, bytes) or not isinstance(document, str | Iterable):
                    raise TypeError(f"document {number} is neither a str nor an iterator of them")
                yield document

    return replace(own, function=read, files=None)


def read_pieces(data: Data, folder: Path) -> Iterator[Piece]:
    """Yield the documents of the corpus that `data` names, in pieces.

    Raises ParibusError if the corpus cannot be read or has no text.
    """
    corpus = find_corpus(data, folder)
    is_empty = True
    for piece in pieces(corpus.function(data, folder)):
        try:
            piece.text.encode()
        except UnicodeEncodeError as error:
            raise ParibusError(
                f"document {piece.document + 1} of corpus '{data.corpus}' has half of a surrogate "
                f"pair (\\u{ord(piece.text[error.start]):04x}), not a character; correct it",
                code="unreadable",
            ) from None
        is_empty = False
        yield piece
    if is_empty:
        raise ParibusError(f"corpus '{data.corpus}' is empty; give it some text", code="missing")
