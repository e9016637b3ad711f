"""The files that runs of other programs were read from: which bytes they had, and have now.

A path is kept relative to the results folder, so that both may move together.
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
    """Return SHA-256 of the files among `paths`, by their path from the results folder `home`."""
    files = {
        Path(os.path.relpath(path, home)).as_posix(): Path(path)
        for path in paths
        if is_regular(path)
    }
    return {name: file_digest(files[name]) for name in sorted(files)}


def changed_since(judged: Mapping[str, str], home: Path) -> tuple[list[str], int]:
    """Return which files of `home` have other bytes than were `judged`, as paths from here, and how
    many are gone."""
    paths = {name: Path(os.path.normpath(home.absolute() / name)) for name in judged}
    present = {name: path for name, path in paths.items() if is_regular(path)}
    other = [file for name, file in present.items() if file_digest(file) != judged[name]]
    return [os.path.relpath(file) for file in other], len(judged) - len(present)


def changed(folder: ResultsFolder) -> str:
    """Return which files changed after they were judged, in words; empty where none did."""
    record = folder.read_runs()
    files, _ = changed_since(record.sha256, folder.path) if record else ([], 0)
    if record is None or not files:
        return ""
    count = f"{len(files)} of {plural(len(record.sha256), 'file')}"
    return f"{count} changed after {folder.path} was judged, such as {files[0]}"
