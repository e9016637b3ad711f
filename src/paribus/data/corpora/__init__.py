"""Corpora, one file each. A corpus is a function from its `Data` spec to a list of documents.

A new corpus is one file in this folder with one decorated function.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

from paribus.errors import ParibusError, nearest
from paribus.study import Data

# (the `data` table of the study, the folder where its relative paths start) -> documents
Corpus = Callable[[Data, Path], list[str]]

_CORPORA: dict[str, Corpus] = {}


def corpus(name: str) -> Callable[[Corpus], Corpus]:
    """Register a corpus under `name`, the value of `data.corpus` in a study."""

    def register(function: Corpus) -> Corpus:
        if name in _CORPORA:
            raise ValueError(f"corpus '{name}' is registered twice")
        _CORPORA[name] = function
        return function

    return register


def read_corpus(data: Data, folder: Path) -> list[str]:
    """The documents of the corpus that `data` names; at least one, none empty."""
    if data.corpus not in _CORPORA:
        raise ParibusError(f"corpus '{data.corpus}' is unknown: {nearest(data.corpus, _CORPORA)}")
    if data.path is not None and data.corpus != "text":
        raise ParibusError(
            f"data.path = '{data.path}' is only read by the corpus 'text', "
            f"and data.corpus is '{data.corpus}'; drop one of them"
        )
    documents = [document for document in _CORPORA[data.corpus](data, folder) if document]
    if not documents:
        raise ParibusError(f"corpus '{data.corpus}' is empty; give it some text")
    return documents


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
