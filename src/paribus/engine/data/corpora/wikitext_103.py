"""`wikitext-103`: good and featured articles of Wikipedia (Merity et al. 2016, arXiv 1609.07843).

The raw version: WikiText as it is without the words that were replaced by <unk>.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.data.corpora.huggingface import files_of, stream_dataset
from paribus.study import Data

NAME = "Salesforce/wikitext"
SUBSET = "wikitext-103-raw-v1"
# A row is a line of the text. " = Title = " begins an article, " = = Section = = " none.
_TITLE = re.compile(r" = [^=].* = \n?")


@corpus(
    "wikitext-103",
    files=files_of(NAME),
    reads=("split", "revision", "column"),
    # Rows and licence as its repository shows them, compared with it on 2026-11-22.
    about=f"{NAME}, {SUBSET}, on the Hugging Face hub: 28,475 articles for training (Merity et "
    "al. 2016) in 1.8 million lines, and 60 each in the splits validation and test",
    licence="CC BY-SA 3.0 and GFDL",
)
def wikitext_103(data: Data, folder: Path) -> Iterator[str]:
    """Each article is a document."""
    return articles(stream_dataset(data, folder, NAME, SUBSET))


def articles(lines: Iterable[str]) -> Iterator[str]:
    """`lines` of WikiText, joined to articles: a title stands between two empty lines."""
    waiting: list[str] = []
    for line in lines:
        is_title = bool(_TITLE.fullmatch(line)) and (not waiting or not waiting[-1].strip())
        if is_title and any(text.strip() for text in waiting):
            yield "".join(waiting)
            waiting.clear()
        waiting.append(line)
    if waiting:
        yield "".join(waiting)
