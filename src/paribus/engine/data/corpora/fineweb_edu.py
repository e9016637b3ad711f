"""`fineweb-edu`: educational web text (Penedo et al. 2024, arXiv 2406.17557), on the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.data.corpora.huggingface import files_of, stream_dataset
from paribus.study import Data

NAME = "HuggingFaceFW/fineweb-edu"
SUBSET = "sample-10BT"


@corpus(
    "fineweb-edu",
    files=files_of(NAME),
    reads=("subset", "split", "revision", "column"),
    about=f"{NAME} on the Hugging Face hub; data.subset, by default its sample of 10 billion "
    "GPT-2 tokens",
    # As the cards of FineWeb2 and of copies of this set state; its own card was not at hand.
    licence="ODC-By 1.0, and the terms of use of Common Crawl",
)
def fineweb_edu(data: Data, folder: Path) -> Iterator[str]:
    """Each page is a document."""
    return stream_dataset(data, folder, NAME, SUBSET)
