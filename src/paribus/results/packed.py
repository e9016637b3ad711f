"""Reading the archive of a kept study, which may be damaged or made to do damage.

It is what `keep` writes and no other tar: regular files, each with a plain header, and before that
another one with the path where it is long or not ASCII (pax, POSIX.1-2001). `tarfile` reads far
more, and believes a header that claims three gigabytes. Here no more is held in memory than MIB, no
more is read than an archive of that size holds, and the first thing that is wrong ends it.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from paribus.errors import ParibusError
from paribus.untrusted_io import MIB, open_regular

MOST_BYTES = 4096 * MIB  # of an archive, and of all that is in it
# What an archive may hold for its own size. The project's 20 kept studies have 3 to 14 bytes for
# each of theirs, one of a model with 6,000 parameters 24; and a file for 400 to 1,400 bytes. Zeros
# have 7,000, and files with nothing in them one for 1.5.
MOST_RATIO = 250
BYTES_PER_FILE = 64
# And whatever its size, what is unpacked in a tenth of a second.
ALWAYS_BYTES = 64 * MIB
ALWAYS_FILES = 1024
MOST_PARTS = 64  # of a path: records have six, and the folders of own code are the user's
HEADER_BYTES = 8192  # of a header with a path: Linux has paths of 4,096 bytes
BLOCK = tarfile.BLOCKSIZE

# Records of a pax header as `tarfile` writes it: of a path, that is or is not UTF-8.
_PATH = re.compile(rb"(?:21 hdrcharset=BINARY\n)?((\d{1,4}) path=[^\n]+\n)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _DamagedError(tarfile.TarError):
    """What is wrong with the archive, beside what `tarfile` finds."""


def unpack_records(archive: Path, folder: Path, homes: tuple[str, ...]) -> None:
    """Write every file in `archive` below `folder`, in one of the folders `homes`.

    Raises ParibusError where it is no archive that `keep` has written.
    """
    with open_regular(archive, MOST_BYTES) as handle, lzma.LZMAFile(handle) as unpacked:
        size = os.fstat(handle.fileno()).st_size
        stream = _Stream(unpacked, min(MOST_BYTES, ALWAYS_BYTES + MOST_RATIO * size))
        left = ALWAYS_FILES + size // BYTES_PER_FILE  # of files and folders
        made = {PurePosixPath()}
        try:
            for name, n_bytes in _members(stream):
                path = _require_record(name, homes)
                new = [parent for parent in path.parents if parent not in made]
                left -= len(new) + 1
                if left < 0:
                    raise _DamagedError(f"more files in it than its {size:,} bytes can be of")
                for parent in reversed(new):
                    (folder / parent).mkdir()
                made.update(new)
                with (folder / path).open("xb") as target:
                    for content in stream.pieces(n_bytes):
                        target.write(content)
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, MemoryError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ParibusError(
                f"{archive} is not the archive that was written ({why or 'too large'}); restore it"
            ) from None


class _Stream:
    """The bytes of an archive as they are unpacked, and no more than `most` of them."""

    def __init__(self, file: lzma.LZMAFile, most: int) -> None:
        self._file, self._left, self._most = file, most, most

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes, a MiB at a time, which end with their last block."""
        if size > self._left:
            raise _DamagedError(f"more than {self._most:,} bytes in it, too many for its own size")
        for start in range(0, size, MIB):
            yield self._read(min(MIB, size - start))
        self._read(-size % BLOCK)

    def block(self) -> bytes:
        """The next block."""
        return b"".join(self.pieces(BLOCK))

    def _read(self, size: int) -> bytes:
        self._left -= size
        content = self._file.read(size)
        if len(content) < size:
            raise _DamagedError("it ends too early")
        return content


def _members(stream: _Stream) -> Iterator[tuple[str, int]]:
    """Name and size of each file; the content is to be taken before the next."""
    path = ""
    while any(block := stream.block()):
        about = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if about.type == tarfile.XHDTYPE and not path and 0 < about.size <= HEADER_BYTES:
            path = _path_in(b"".join(stream.pieces(about.size)))
        elif about.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and about.size >= 0:
            yield path or about.name, about.size
            path = ""
        else:
            raise _DamagedError(f"it holds {(path or about.name)[:100]!r}, which is no record")


def _path_in(header: bytes) -> str:
    """The path that a pax header states."""
    stated = _PATH.fullmatch(header)
    if not stated or int(stated[2]) != len(stated[1]):
        raise _DamagedError("a header that is none of a path")
    return os.fsdecode(stated[1].partition(b"=")[2][:-1])


def _require_record(name: str, homes: tuple[str, ...]) -> PurePosixPath:
    """Where a file belongs, relative. Raises _DamagedError for what `keep` never writes."""
    path = PurePosixPath(name)
    ours = 1 < len(path.parts) <= MOST_PARTS and path.parts[0] in homes
    if not ours or _CONTROL.search(name) or any(part.startswith(".") for part in path.parts):
        raise _DamagedError(f"it holds {name[:100]!r}, which is no record")
    return path
