"""`tinystories`: short synthetic stories (Eldan & Li 2023, arXiv 2305.07759), on the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.data.corpora.huggingface import files_of, stream_dataset
from paribus.study import Data

NAME = "roneneldan/TinyStories"


@corpus(
    "tinystories",
    files=files_of(NAME),
    reads=("split", "revision", "column"),
    # Size and licence as its repository shows them, compared with it on 2026-11-22.
    about=f"{NAME} on the Hugging Face hub: 1.92 GB of stories by GPT-3.5 and GPT-4 in the words "
    "of a child",
    licence="CDLA-Sharing-1.0",
)
def tinystories(data: Data, folder: Path) -> Iterator[str]:
    """Each story is a document."""
    return stream_dataset(data, folder, NAME)
