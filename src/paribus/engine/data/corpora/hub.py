"""Hugging Face data sets, streamed at a fixed revision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.data.corpora.text_files import text_at
from paribus.engine.setting import Data
from paribus.errors import ParibusError


@corpus(
    "huggingface",
    files=lambda data, folder: [],  # the revision decides
    reads=("name", "subset", "split", "revision", "column"),
)
def huggingface(data: Data, folder: Path) -> Iterator[str]:
    """Yield the `data.column` of each row in a Hugging Face data set.

    `data.revision` must be a commit, because a branch may change between runs. Raises ParibusError
    if the data set cannot be read.
    """
    if data.name is None or data.revision is None:
        raise ParibusError(
            "data.corpus = 'huggingface' requires data.name and data.revision, so that every run "
            "reads the same text; set data.name, such as 'HuggingFaceFW/fineweb-edu', and set "
            "data.revision to a commit from the data set's page on the hub"
        )
    try:
        import datasets
    except ImportError:
        raise ParibusError(
            f"reading the data set '{data.name}' requires the package datasets; install it with "
            "pip install 'paribus[datasets]'"
        ) from None
    try:
        rows = datasets.load_dataset(
            data.name,
            data.subset,
            split=data.split or "train",
            revision=data.revision,
            streaming=True,
        )
        for number, row in enumerate(rows, 1):
            yield text_at(data.text_column, row, f"row {number} of the data set '{data.name}'")
    except ParibusError:
        raise
    except Exception as error:  # the library raises whatever its own libraries raise
        raise ParibusError(
            f"cannot read the data set '{data.name}' ({type(error).__name__}: {str(error)[:200]}); "
            "check data.name, data.subset, data.split, data.revision and the network connection"
        ) from None
