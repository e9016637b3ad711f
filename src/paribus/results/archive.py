"""Copies of results folders without weights, small enough for a repository.

<archive>/
  study.json, registration.json ...   the records at the top level, as they are
  records.tar.xz                      all other records (`paribus.results.records_archive`)

Every reader uses such a folder as it is. The manifests are unchanged, so its root digest is that of
the study. Files that `paribus report` writes again (analysis, page, tables) are not copied.
"""

from __future__ import annotations

import os
from pathlib import Path

from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.results.read import Results, load_results
from paribus.results.records_archive import ARCHIVE, MOST_BYTES, PACKED, pack
from paribus.results.store import ResultsFolder
from paribus.results.trial_folder import is_weights
from paribus.untrusted_io import files_below, read_bytes

KINDS = (".json", ".parquet")  # of files at the top level


def archive(results: str | os.PathLike[str] | Results, out: str | os.PathLike[str]) -> Path:
    """Copy a results folder, or loaded results, to the new folder `out`, without its weights.

    Raises ParibusError if a record was changed after it was sealed, or `out` exists.
    """
    loaded = results if isinstance(results, Results) else load_results(results)
    folder, target = ResultsFolder(loaded.path), Path(out)
    if os.path.lexists(target):
        raise ParibusError(f"{target} already exists; remove it, or choose another folder")
    with whole_folder(target) as new:
        for file in sorted(folder.path.iterdir()):
            is_record = file.suffix in KINDS and file.name != "analysis.json"
            if is_record and not file.name.startswith("."):
                write_bytes(new / file.name, read_bytes(file, MOST_BYTES))
        write_bytes(new / ARCHIVE, pack(_packed(folder.records)))
    return target


def _packed(records: Path) -> dict[str, bytes]:
    """Return the content of the archive, keyed by path."""
    return {
        file.relative_to(records).as_posix(): read_bytes(file, MOST_BYTES)
        for name in PACKED
        for file in (files_below(records / name) if (records / name).is_dir() else ())
        if not is_weights(file.name) and "__pycache__" not in file.parts
    }
