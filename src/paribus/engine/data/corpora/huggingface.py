"""`huggingface`: a data set of the Hugging Face hub, by name and revision, streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from paribus.engine.data.corpora import Files, corpus
from paribus.errors import ParibusError, nearest
from paribus.study import Data
from paribus.untrusted_io import TEXT_BYTES, files_below, open_regular


def dataset_files(data: Data, folder: Path) -> list[Path]:
    """The files of a data set in a folder; none of one of the hub, whose revision decides."""
    return _local_files(folder, data.name) if data.name else []


def files_of(name: str) -> Files:
    """The same of a corpus that is the data set `name`, of the hub or in a folder."""
    return lambda data, folder: _local_files(folder, name)


def _local_files(folder: Path, name: str) -> list[Path]:
    """Those below `name`, none where that is no folder; each was opened as a regular file.

    The library opens them by their paths: raises ParibusError for a pipe, a device, and a link that
    leaves the folder, before it does.
    """
    if not os.path.isdir(folder / name):
        return []
    files = list(files_below(folder / name))
    for file in files:
        open_regular(file, TEXT_BYTES).close()
    return files


@corpus(
    "huggingface",
    files=dataset_files,
    reads=("name", "subset", "split", "revision", "column"),
    about="a data set of the Hugging Face hub, streamed; needs the extra 'datasets'",
)
def huggingface(data: Data, folder: Path) -> Iterator[str]:
    """`data.column` of every row of the split `data.split` of the data set `data.name`.

    A name that is a folder below the study's is read from there, as `datasets` reads it. One of the
    hub needs `data.revision`, a commit: a branch may change from one run to the next.
    """
    if data.name is None:
        raise ParibusError(
            "data.corpus = 'huggingface' needs data.name, such as 'HuggingFaceFW/fineweb-edu'"
        )
    return stream_dataset(data, folder, data.name)


def stream_dataset(data: Data, folder: Path, name: str, subset: str | None = None) -> Iterator[str]:
    """The rows of the data set `name`; raises ParibusError where it cannot be opened."""
    try:
        import datasets
    except ImportError:
        raise ParibusError(
            f"the data set '{name}' is read with the library datasets; "
            "install it with: pip install 'paribus[datasets]'"
        ) from None
    local = os.path.isdir(folder / name)
    if not local and data.revision is None:
        raise ParibusError(
            f"the data set '{name}' needs data.revision, a commit of its repository, so that every "
            "run reads the same text; its page on the hub shows it"
        )
    _local_files(folder, name)
    try:
        rows = datasets.load_dataset(
            str(folder / name) if local else name,
            data.subset or subset,
            split=data.split or "train",
            revision=None if local else data.revision,
            streaming=True,
        )
        for number, row in enumerate(rows, 1):
            text = row.get(data.text_column)
            if not isinstance(text, str):
                known = [key for key, value in row.items() if isinstance(value, str)]
                raise ParibusError(
                    f"row {number} of the data set '{name}' has no text in data.column = "
                    f"'{data.text_column}': {nearest(data.text_column, known)}"
                )
            yield text
    except ParibusError:
        raise
    except Exception as error:  # the library raises whatever its own libraries raise
        raise ParibusError(
            f"cannot read the data set '{name}' ({type(error).__name__}: {str(error)[:200]}); "
            "check data.name, data.subset, data.split and data.revision, and the network"
        ) from None
