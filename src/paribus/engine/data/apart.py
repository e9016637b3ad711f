"""Held-out text is nowhere else: neither as a file, nor as a copy of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paribus.engine.data.corpora import SOURCE_KEYS, find_corpus
from paribus.engine.data.source import Source
from paribus.errors import ParibusError
from paribus.study import CORPUS, Data

VALIDATION, TEST = "validation", "test"
RULE = "held-out text must be nowhere else: take it out of one of them"


def require_other_files(
    data: Data, training: Mapping[str, Source], held: Mapping[str, Source]
) -> None:
    """Raise ParibusError where a file that is held out is trained on or held out twice.

    A file has many names: links of both kinds are followed.
    """
    sources = {**training, **held}
    files = {name: _files(source) for name, source in sources.items()}
    for name, words in _held_out(data, held).items():
        for other in sources:
            if other == name:
                continue
            again = sorted(files[name].keys() & files[other].keys())
            is_same = name == CORPUS and _named(sources[other]) == _named(sources[CORPUS])
            if again or is_same:
                what = files[name][again[0]] if again else f"the corpus '{data.corpus}'"
                raise ParibusError(f"{what} is of {words}, and {_elsewhere(other)}; {RULE}")


def require_other_text(data: Data, held: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Raise ParibusError where one of `texts`, digests by name, is one that is held out.

    `held` are the digests of held-out text, `validation` and `test`. A copy, compressed or not, is
    the same text, and so is a folder that holds no more than it. The corpus is compared whole where
    a part of it is held out.
    """
    whole = {CORPUS: texts[CORPUS]} if CORPUS in _held_out(data, held) else {}
    for name, sha256 in {**held, **whole}.items():
        for other, found in {**texts, **held}.items():
            if other != name and found == sha256:
                words = _held_out(data, held).get(name, f"data.{name}_fraction")
                raise ParibusError(
                    f"the text of {words} (SHA-256 {sha256[:12]}) is there again, and "
                    f"{_elsewhere(other)}; {RULE}"
                )


def _held_out(data: Data, held: Mapping[str, object]) -> dict[str, str]:
    """Which texts are held out, all or in part, with the words for them."""
    own = {VALIDATION: data.validation_path, TEST: data.test_path}
    told = {name: f"data.{name}_path" for name in held if own[name] is not None}
    if data.validation_path is None or data.test_fraction:
        told[CORPUS] = "data.corpus, whose last part is held out"
    return told


def _elsewhere(name: str) -> str:
    if name in (VALIDATION, TEST):
        return f"the {name} text would be the same"
    where = "data.path" if name == CORPUS else f"data.sources.{name}"
    return f"{where} would have it trained on"


def _files(source: Source) -> dict[tuple[int, int], Path]:
    """The files of a source, by what is the same for every name of a file."""
    corpus = find_corpus(source.data, source.folder)
    files = corpus.files(source.data, source.folder) if corpus.files else []
    stats = {file: file.stat() for file in files}
    return {(stat.st_dev, stat.st_ino): file.resolve() for file, stat in stats.items()}


def _named(source: Source) -> list[object]:
    return [getattr(source.data, key) for key in ("corpus", *SOURCE_KEYS)]
