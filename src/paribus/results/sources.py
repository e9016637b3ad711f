"""The files that a study names, kept in its results folder so that this is complete.

`sources/` holds, under the same relative paths, every source that the study's custom code
uses, its tokenizers, and its texts where these are small files.
What a study names outside its own folder has no such path, and is not kept; nor are installed
packages. The digests of the files are in the registration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.study import Study, changed_sources, custom_code, own_digests
from paribus.study.custom_code import SOURCES, own_files
from paribus.untrusted_io import TOKENIZER_BYTES, read_bytes

MOST_TEXT_BYTES = 32 * 2**20  # of a text that is kept


def keep_sources(study: Study, results: Path) -> dict[str, str]:
    """Copy what `study` names to `results`; returns {relative path: SHA-256 of the file}."""
    kept = {}
    root = study.folder.resolve()
    for file in sorted(set(_named(study))):
        if not file.is_relative_to(root) or not file.is_file():
            continue
        name, content = file.relative_to(root).as_posix(), read_bytes(file, TOKENIZER_BYTES)
        kept[name] = hashlib.sha256(content).hexdigest()
        if results / SOURCES / name != file:  # not where the study was read from there
            write_bytes(results / SOURCES / name, content)
    return kept


def require_same_sources(study: Study, trials: Mapping[tuple[str, int], dict[str, Any]]) -> None:
    """Raise ParibusError where the custom code of a trial is not what it was trained with.

    `trials` is trial.json by (arm, seed).
    """
    for (arm, seed), trial in trials.items():
        now = own_digests(study.setting(arm), study.folder)
        if changed := changed_sources(trial["own_modules"], now):
            names = ", ".join(sorted(changed))
            raise ParibusError(
                f"{names} in {study.folder} is not what trial {arm}/seed-{seed} was trained with; "
                "restore it"
            )


def _named(study: Study) -> Iterable[Path]:
    """Every file that the study names or uses, resolved."""
    for path in custom_code(study):
        yield from own_files(path, study.folder, f"'{path}'")
    for data in dict.fromkeys([study.data, *(study.setting(arm).data for arm in study.arms)]):
        if data.tokenizer_file is not None:
            yield (study.folder / data.tokenizer_file).resolve()
        for path in data.texts:
            text = (study.folder / path).resolve()
            if text.is_file() and text.stat().st_size <= MOST_TEXT_BYTES:
                yield text
