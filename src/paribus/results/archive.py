"""Copies of results folders without weights, small enough for a repository.

<archive>/
  study.json, registration.json ...   the records at the top level, as they are
  records.tar.xz                      all other records (`paribus.results.store`)

Every reader uses such a folder as it is. The manifests are unchanged, so its root digest is that of
the study. Files that `paribus report` writes again (analysis and page) are not copied.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.results.read import Results, load_results
from paribus.results.store import ARCHIVE, ARCHIVE_BYTES, ResultsFolder
from paribus.results.trial_folder import is_weights
from paribus.untrusted_io import files_below, read_bytes

PACKED = ("sources", "tasks", "test", "trials", "tuning")  # folders of records
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
                write_bytes(new / file.name, read_bytes(file, ARCHIVE_BYTES))
        records = {
            file.relative_to(folder.records).as_posix(): read_bytes(file, ARCHIVE_BYTES)
            for name in PACKED
            if (folder.records / name).is_dir()
            for file in files_below(folder.records / name)
            if not is_weights(file.name) and "__pycache__" not in file.parts
        }
        write_bytes(new / ARCHIVE, pack(records))
    return target


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of `files`, keyed by relative path. Equal files give equal bytes."""
    sink = io.BytesIO()
    with (
        lzma.open(sink, "wb", preset=9 | lzma.PRESET_EXTREME) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as members,
    ):
        # Files of one name are alike, and compress well next to each other.
        for name in sorted(files, key=lambda name: (PurePosixPath(name).name, name)):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            members.addfile(member, io.BytesIO(files[name]))
    return sink.getvalue()
