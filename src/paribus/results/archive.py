"""Compact copies of results folders, without model weights.

<archive>/
  study.json, registration.json ...   unchanged copies of the top-level records
  records.tar.xz                      all other records (`paribus.results.store`)

Every command that reads results accepts an archive. The root digest equals that of the original
folder. Files that `paribus report` can re-create (analysis.json, page) are not copied.
"""

from __future__ import annotations

import lzma
import os
import tarfile
from pathlib import Path

from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.results.read import Results
from paribus.results.store import ARCHIVE, ARCHIVE_BYTES, ResultsFolder
from paribus.results.trial_folder import is_weights
from paribus.untrusted_io import files_below, read_bytes

PACKED = ("sources", "tasks", "test", "trials", "tuning")  # folders of records
KINDS = (".json", ".parquet")  # of files at the top level


def archive(results: Results, out: str | os.PathLike[str]) -> Path:
    """Copy a results folder without its weights to the new folder `out`, and return its path.

    Raises ParibusError if a record differs from its digest in the manifest, or if `out` exists.
    """
    folder, target = ResultsFolder(results.path), Path(out)
    if os.path.lexists(target):
        raise ParibusError(f"{target} already exists; remove it, or choose another folder")
    with whole_folder(target) as new:
        for file in sorted(folder.path.iterdir()):
            if file.suffix in KINDS and file.name != "analysis.json":
                write_bytes(new / file.name, read_bytes(file, ARCHIVE_BYTES))
        records = [
            file
            for name in PACKED
            if (folder.records / name).is_dir()
            for file in files_below(folder.records / name)
            if not is_weights(file.name) and "__pycache__" not in file.parts
        ]
        with tarfile.open(new / ARCHIVE, "w:xz", preset=9 | lzma.PRESET_EXTREME) as members:
            # Files with the same name are similar, and compress well next to each other.
            for file in sorted(records, key=lambda file: (file.name, file)):
                # Owners and times are omitted, so that equal records give equal bytes.
                member = tarfile.TarInfo(file.relative_to(folder.records).as_posix())
                member.size = file.stat().st_size
                with file.open("rb") as content:
                    members.addfile(member, content)
    return target
