"""`text`: any UTF-8 file, or a folder of them with each file a document; compressed ones too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.data.pieces import Document
from paribus.engine.data.reading import corpus_files, parts_of
from paribus.study import Data


@corpus("text", reads=("path",), files=corpus_files, about="UTF-8 files, each a document")
def text(data: Data, folder: Path) -> Iterator[Document]:
    """The file `data.path`, or every file below the folder `data.path`, in the order of paths."""
    return (parts_of(file) for file in corpus_files(data, folder))
