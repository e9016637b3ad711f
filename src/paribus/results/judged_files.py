"""Digests of the files from which runs of other programs were read, then and now.

Paths are relative to the results folder, so that both may move together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from paribus.files import file_digest
from paribus.numbers import plural
from paribus.results.store import ResultsFolder
from paribus.untrusted_io import is_regular


def digests(paths: Iterable[str], home: Path) -> dict[str, str]:
    """Return {path relative to the results folder `home`: SHA-256} of the files among `paths`."""
    files = {
        Path(os.path.relpath(path, home)).as_posix(): Path(path)
        for path in paths
        if is_regular(path)
    }
    return {name: file_digest(files[name]) for name in sorted(files)}


def changed_since(judged: Mapping[str, str], home: Path) -> tuple[list[str], int]:
    """Return the files whose digest differs from that in `judged`, and the number of missing
    files. Keys of `judged` are relative to `home`; returned paths to the working directory."""
    paths = {name: Path(os.path.normpath(home.absolute() / name)) for name in judged}
    present = {name: path for name, path in paths.items() if is_regular(path)}
    other = [file for name, file in present.items() if file_digest(file) != judged[name]]
    return [os.path.relpath(file) for file in other], len(judged) - len(present)


def changed(folder: ResultsFolder) -> str:
    """Describe the files that changed after they were judged; empty if none did."""
    record = folder.read_runs()
    files, _ = changed_since(record.sha256, folder.path) if record else ([], 0)
    if record is None or not files:
        return ""
    count = f"{len(files)} of {plural(len(record.sha256), 'file')}"
    return f"{count} changed after {folder.path} was judged, such as {files[0]}"
