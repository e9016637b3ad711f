"""Streamed data sets of the Hugging Face hub: any by name and revision, and well-known ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from paribus.engine.data.corpora import Corpus, corpus
from paribus.engine.setting import Data
from paribus.errors import ParibusError, nearest
from paribus.untrusted_io import TEXT_BYTES, files_below, open_regular

_KEYS = ("split", "revision", "column")
# A row of WikiText is a line. " = Title = " begins an article, " = = Section = = " none.
_TITLE = re.compile(r" = [^=].* = \n?")


def _local_files(folder: Path, name: str) -> list[Path]:
    """Return the files below `name`; an empty list if it is not a folder.

    Raises ParibusError for a pipe, a device, or a link that leaves the folder, because the library
    would open it.
    """
    if not os.path.isdir(folder / name):
        return []
    files = files_below(folder / name)
    for file in files:
        open_regular(file, TEXT_BYTES).close()
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


def _well_known(
    name: str,
    dataset: str,
    subset: str | None = None,
    *keys: str,
    join: Callable[[Iterator[str]], Iterator[str]] = iter,
) -> Corpus:
    """Return a data set of the hub as the corpus `name`; `join` turns its rows into documents."""
    return Corpus(
        name,
        frozenset((*_KEYS, *keys)),
        read=lambda data, folder: join(_rows(data, folder, dataset, subset)),
        files=lambda data, folder: _local_files(folder, dataset),
    )


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Join the lines of WikiText into articles; a title stands between two empty lines."""
    waiting: list[str] = []
    for line in lines:
        is_title = bool(_TITLE.fullmatch(line)) and (not waiting or not waiting[-1].strip())
        if is_title and any(text.strip() for text in waiting):
            yield "".join(waiting)
            waiting.clear()
        waiting.append(line)
    if waiting:
        yield "".join(waiting)


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


# Web pages (Penedo et al. 2024, arXiv 2406.17557), by default of the sample of 10 billion GPT-2
# tokens. ODC-By 1.0 and the terms of use of Common Crawl, as on the cards of FineWeb2 and of copies
# of this set; its own card was not at hand.
fineweb_edu = _well_known("fineweb-edu", "HuggingFaceFW/fineweb-edu", "sample-10BT", "subset")
# 1.92 GB of stories by GPT-3.5 and GPT-4 in the words of a child. Eldan & Li 2023, arXiv
# 2305.07759; CDLA-Sharing-1.0, as its repository showed on 2026-11-22.
tinystories = _well_known("tinystories", "roneneldan/TinyStories")
# Good and featured articles of Wikipedia (Merity et al. 2016, arXiv 1609.07843), no words replaced
# by <unk>: 28,475 for training in 1.8 million lines, and 60 each in the splits validation and test;
# CC BY-SA 3.0 and GFDL, as its repository showed on 2026-11-22.
wikitext_103 = _well_known(
    "wikitext-103", "Salesforce/wikitext", "wikitext-103-raw-v1", join=articles
)
