"""`jsonl`: files of JSON lines, each line an object that has the text in one key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.engine.data.corpora import corpus
from paribus.engine.data.reading import corpus_files, objects_of
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
        for number, found in objects_of(file, data.text_column):
            value = _text(found, data, f"{file}, line {number},")
            yield value


def _text(found: Any, data: Data, where: str) -> str:
    """The text of one line. Raises ParibusError where there is none, or none that has UTF-8."""
    if not isinstance(found, dict):
        raise ParibusError(
            f"{where} is {_kind(found)} and no object; each line is one, such as "
            f'{{"{data.text_column}": "..."}}'
        )
    key = data.text_column
    if key not in found:
        known = [name for name, inner in found.items() if isinstance(inner, str)]
        raise ParibusError(f"{where} has no data.column = '{key}': {nearest(key, known)}")
    value = found[key]
    if not isinstance(value, str):
        raise ParibusError(
            f"{where} has {_kind(value)} in data.column = '{key}', and a document is a text; "
            "correct the line, or name the key of the text"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ParibusError(
            f"{where} has half of a surrogate pair (\\u{ord(value[error.start]):04x}) in "
            f"data.column = '{key}', which is no character; correct the line"
        ) from None
    return value


def _kind(value: Any) -> str:
    """What JSON calls the type of a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {dict: "an object", list: "a list", str: "a text"}
    return kinds.get(type(value), "a number")
