"""`text`: any UTF-8 file, or a folder of them with each file a document."""

from __future__ import annotations

from pathlib import Path

from paribus.data.corpora import corpus
from paribus.errors import ParibusError
from paribus.foreign import TEXT_BYTES, decode, files_below, read_bytes
from paribus.study import Data


@corpus("text")
def text(data: Data, folder: Path) -> list[str]:
    """The file `data.path`, or every file below the folder `data.path`, in the order of paths."""
    if data.path is None:
        raise ParibusError("data.corpus = 'text' needs data.path, a UTF-8 file or a folder of them")
    path = folder / data.path
    try:
        is_folder = path.is_dir()
    except ValueError:  # a NUL in it
        is_folder = False
    missing = f"data.path = '{data.path}' does not exist at {path}; correct the path"
    documents, most = [], TEXT_BYTES
    for file in files_below(path) if is_folder else (path,):
        content = read_bytes(file, most, missing=missing)
        documents.append(decode(content, file))
        most -= len(content)
    return documents
