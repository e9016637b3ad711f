"""`jsonl`: files of JSON lines, each line an object that has the text in one key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paribus.data.corpora import corpus
from paribus.data.reading import corpus_files, objects_of
from paribus.errors import ParibusError, nearest
from paribus.study import Data


@corpus(
    "jsonl",
    reads=("path", "column"),
    files=corpus_files,
    about="files of JSON lines, each line a document",
)
def jsonl(data: Data, folder: Path) -> Iterator[str]:
    """`data.column` of every line of the file `data.path`, or of the files below that folder."""
    for file in corpus_files(data, folder):
        for number, found in objects_of(file):
            line = found if isinstance(found, dict) else {}
            value = line.get(data.text_column)
            if not isinstance(value, str):
                known = [key for key, inner in line.items() if isinstance(inner, str)]
                raise ParibusError(
                    f"{file}, line {number}, has no text in data.column = '{data.text_column}': "
                    f"{nearest(data.text_column, known)}"
                )
            yield value
