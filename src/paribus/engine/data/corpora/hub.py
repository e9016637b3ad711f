"""Streamed data sets of the Hugging Face hub: any by name and revision, and FineWeb-Edu."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.setting import Data
from paribus.errors import ParibusError, nearest
from paribus.untrusted_io import files_below, open_regular

_KEYS = ("split", "revision", "column")
FINEWEB_EDU = "HuggingFaceFW/fineweb-edu"


def _local_files(folder: Path, name: str) -> list[Path]:
    """Return the files below `name`; an empty list if it is not a folder.

    Raises ParibusError for a pipe, a device, or a link that leaves the folder, because the library
    would open it.
    """
    if not os.path.isdir(folder / name):
        return []
    files = files_below(folder / name)
    for file in files:
        open_regular(file).close()
    return files


@corpus(
    "huggingface",
    # None of a data set of the hub, whose revision decides.
    files=lambda data, folder: _local_files(folder, data.name) if data.name else [],
    reads=("name", "subset", *_KEYS),
)
def huggingface(data: Data, folder: Path) -> Iterator[str]:
    """Yield `data.column` of every row of the split `data.split` of the data set `data.name`.

    If `data.name` is a folder below the study's, it is read from there, as `datasets` does. A data
    set of the hub needs `data.revision`, a commit, because a branch may change between runs.
    """
    if data.name is None:
        raise ParibusError(
            "data.corpus = 'huggingface' needs data.name, such as 'HuggingFaceFW/fineweb-edu'"
        )
    return _rows(data, folder, data.name)


# Web pages (Penedo et al. 2024, arXiv 2406.17557), by default of the sample of 10 billion GPT-2
# tokens. ODC-By 1.0 and the terms of use of Common Crawl, as on the cards of FineWeb2 and of copies
# of this set; its own card was not at hand.
@corpus(
    "fineweb-edu",
    files=lambda data, folder: _local_files(folder, FINEWEB_EDU),
    reads=("subset", *_KEYS),
)
def fineweb_edu(data: Data, folder: Path) -> Iterator[str]:
    """Yield the pages of FineWeb-Edu."""
    return _rows(data, folder, FINEWEB_EDU, "sample-10BT")


def _rows(data: Data, folder: Path, name: str, subset: str | None = None) -> Iterator[str]:
    """Yield the texts of the data set `name`; raise ParibusError if it cannot be opened."""
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
