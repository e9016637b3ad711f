"""`pydoc`: the language reference inside every CPython. Real English text with no network."""

from __future__ import annotations

from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.study import Data


@corpus(
    "pydoc",
    about="the language reference inside this Python, each topic a document",
    licence="PSF License Version 2",
)
def pydoc(data: Data, folder: Path) -> list[str]:
    """Each topic of `pydoc_data.topics` is a document; the text differs between Python versions."""
    from pydoc_data.topics import topics  # half a megabyte of source: only when asked for

    return [topics[name] for name in sorted(topics)]
