"""The file `records.tar.xz`: all records of an archived results folder below its top level.

The archive may come from a stranger. Only regular files below the folders in `PACKED` are
extracted, and the size of the archive bounds their number and their size.
"""

from __future__ import annotations

import atexit
import io
import lzma
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from paribus.errors import ParibusError
from paribus.untrusted_io import MIB, RECORD_BYTES, is_regular, open_regular, read_bytes

ARCHIVE = "records.tar.xz"
PACKED = ("sources", "tasks", "test", "trials", "tuning")
MOST_BYTES = 4096 * MIB  # of an archive, and of its content
# The kept studies have at most 40 bytes of content for each byte of the archive, and one file for
# 400 bytes or more. An archive of zeros has 7,000, and one of empty files has a file for 1.5 bytes.
MOST_RATIO = 250
BYTES_PER_FILE = 64
# Always allowed, because extracting this much takes a tenth of a second.
ALWAYS_BYTES = 64 * MIB
ALWAYS_FILES = 1024
MOST_PARTS = 64  # of a path
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Tables of 4-byte numbers come out 2% smaller than by the preset alone.
FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 2, "pb": 2},)
BESIDE = ("study.json", "registration.json")  # an extracted folder has copies of these files


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of `files`, keyed by relative path. Equal files give equal bytes."""
    sink = io.BytesIO()
    with (
        lzma.open(sink, "wb", filters=FILTERS) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        # Files of one name are alike, and compress well next to each other.
        for name in sorted(files, key=lambda name: (PurePosixPath(name).name, name)):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    return sink.getvalue()


def records_of(folder: Path) -> Path:
    """Return where the records below the top level of a results folder are.

    This is `folder` itself, or a temporary folder with the content of its archive. An archive is
    extracted once per process. Raises ParibusError if it is damaged or too large for its size.
    """
    archive = folder / ARCHIVE
    if not is_regular(archive):
        return folder
    status = archive.stat()
    return _extracted(archive.absolute(), status.st_mtime_ns, status.st_size)


@cache
def _extracted(archive: Path, _time_ns: int, _size: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="paribus-archive-"))
    atexit.register(_remove, folder, os.getpid())
    extract(archive, folder)
    for name in BESIDE:
        if is_regular(archive.parent / name):
            (folder / name).write_bytes(read_bytes(archive.parent / name, RECORD_BYTES))
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)


class _DamagedError(tarfile.TarError):
    """The archive breaks one of our own rules."""


def extract(archive: Path, folder: Path) -> None:
    """Extract `archive` into `folder`. Raises ParibusError if it is not one that `pack` wrote."""
    with open_regular(archive, MOST_BYTES) as file, lzma.LZMAFile(file) as unpacked:
        size = os.fstat(file.fileno()).st_size
        stream = _Bounded(unpacked, min(MOST_BYTES, ALWAYS_BYTES + MOST_RATIO * size))
        most_files = ALWAYS_FILES + size // BYTES_PER_FILE
        try:
            with tarfile.open(fileobj=stream, mode="r|") as members:  # type: ignore[call-overload]
                for number, member in enumerate(members):
                    if number >= most_files:
                        raise _DamagedError(f"it has more than {most_files:,} files")
                    target = folder / _require_record(member)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    content = members.extractfile(member)
                    assert content is not None  # it is a regular file
                    with target.open("xb") as written:
                        shutil.copyfileobj(content, written)
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, MemoryError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ParibusError(
                f"{archive} is not the archive that was written ({reason or 'too large'}); "
                "restore it"
            ) from None


class _Bounded:
    """A stream of at most `most` uncompressed bytes."""

    def __init__(self, file: lzma.LZMAFile, limit: int) -> None:
        self._file, self._left, self._most = file, limit, limit

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise _DamagedError(f"it has more than {self._most:,} bytes, too many for its size")
        return content


def _require_record(member: tarfile.TarInfo) -> PurePosixPath:
    """Return the relative path of a member. Raises _DamagedError if it is not a record's."""
    path = PurePosixPath(member.name)
    is_ours = 1 < len(path.parts) <= MOST_PARTS and path.parts[0] in PACKED
    is_ours = is_ours and member.isreg() and not member.issparse()
    if not is_ours or CONTROL.search(member.name) or any(p.startswith(".") for p in path.parts):
        raise _DamagedError(f"{member.name[:100]!r} in it is not a record")
    return path
