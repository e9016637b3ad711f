"""A finished study without its weights: small enough to be kept beside the code.

<kept>/
  kept.json           the root digest, and what was left out
  records.tar.xz      every sealed record of every trial but weights, and of tuning trials but what
                      probes and held-out measures say in detail: trials/, tuning/, test/, and what
                      they rest on: tasks/, sources/
  study.json ...      the other files of the results folder, as they are
  report.html         the page
  tables/             the tables of the paper as CSV, and the scores

Manifests stay as they are: they hold the digests of the weights too, so the root digest is that of
the whole study, and weights that are trained again can be compared (`studies/retrain.py`).
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.results.formats import write_json
from paribus.results.read import Results, load_results
from paribus.results.store import KEPT, PACKED_RECORDS, TUNING_FOLDER, root_digest
from paribus.results.trial_folder import MEASUREMENTS, WEIGHTS, kind_of
from paribus.untrusted_io import MIB, files_below, is_regular, open_regular, read_bytes

TABLES = "tables"
# Folders that go into the archive, and files that are kept as they are.
PACKED = ("sources", "tasks", "test", "trials", TUNING_FOLDER)
NEEDED = ("study.json", "registration.json", "analysis.json", "verdict.json", "report.html")
PLAIN = (".json", ".parquet", ".html")
LEFT_OUT = frozenset({"live.json", KEPT})
# What a results folder is put right by; a kept study is not run again where it lies.
RUN_AGAIN = re.compile(r"(?:restore it, or )?delete \S[^;]*? and run again")


def is_kept(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a study that `keep` wrote."""
    return is_regular(Path(path) / PACKED_RECORDS)


def keep(results: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write the finished study in `results` to the new folder `out`, without its weights.

    Raises ParibusError where a trial, the analysis or the page is missing, a record was changed, or
    `out` is there already.
    """
    folder, target = Path(results), Path(out)
    loaded = load_results(folder)
    if loaded.unfinished:
        raise ParibusError(
            f"{folder} lacks {len(loaded.unfinished)} trials; only a finished study is kept: run it"
        )
    for name in NEEDED:
        if not is_regular(folder / name):
            raise ParibusError(f"{folder / name} is missing; `paribus report {folder}` writes it")
    if os.path.lexists(target):
        raise ParibusError(f"{target} is there already; remove it, or choose another folder")
    with whole_folder(target) as new:
        for file in sorted(folder.iterdir()):
            if file.suffix in PLAIN and file.name[0] != "." and file.name not in LEFT_OUT:
                write_bytes(new / file.name, read_bytes(file, MOST_BYTES))
        for file in (folder / TABLES / "scores.csv", *folder.glob("paper/tables/*.csv")):
            if is_regular(file):
                write_bytes(new / TABLES / file.name, read_bytes(file, MOST_BYTES))
        write_bytes(new / PACKED_RECORDS, _packed(loaded))
        about = {"left_out": [WEIGHTS], "root": root_digest(folder)}
        write_json(new / KEPT, about)
        try:
            _require_read_back(new, about["root"])
        except ParibusError as error:
            raise ParibusError(
                f"{target} was not written, as it could not be read back "
                f"({of_kept(str(error), new, target)}); {folder} is as it was"
            ) from error
    return target


def unpack(kept: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Make a results folder of a kept study, at `out`: all of it but the weights.

    Raises ParibusError where `kept` is none, its archive is damaged, or `out` is there already.
    """
    source, target = Path(kept), Path(out)
    if not is_kept(source):
        raise ParibusError(f"{source} is no kept study: it has no {PACKED_RECORDS}")
    if os.path.lexists(target):
        raise ParibusError(f"{target} is there already; remove it, or choose another folder")
    with whole_folder(target) as new:
        _unpack(source, new)
    return target


@contextlib.contextmanager
def readable(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a results folder to read from: `path` itself, or a kept study unpacked for as long."""
    if not is_kept(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="paribus-kept-") as folder:
        _unpack(Path(path), Path(folder))
        try:
            yield Path(folder)
        except ParibusError as error:
            raise ParibusError(of_kept(str(error), Path(folder), path)) from error


def of_kept(text: str, there: Path, path: str | os.PathLike[str]) -> str:
    """Return what is said of a kept study that was unpacked `there` for a while, as the user has
    it."""
    if there == Path(path):
        return text
    return RUN_AGAIN.sub("restore the kept study", text.replace(f"{there}{os.sep}", f"{path}: "))


def _require_read_back(kept: Path, root: str) -> None:
    """Raise ParibusError where a study that was just kept is not the one with the digest `root`, or
    anything that a verdict is of cannot be read."""
    with readable(kept) as folder:
        found = load_results(folder)
        if found.root != root:
            raise ParibusError(f"its records give the root {found.root}, and not {root}")
        for one in (found, *found.tuning_rounds):
            _ = one.judged.scores, one.controls, one.trial_steps
        _ = found.judged.trial_blocks, found.trial_answers


def _packed(results: Results) -> bytes:
    """Return the archive: equal records give equal bytes."""
    sink, folder = io.BytesIO(), results.path
    rounds = {one.path: _left_out(one) for one in results.tuning_rounds}
    with tarfile.open(fileobj=sink, mode="w:xz", preset=9, format=tarfile.PAX_FORMAT) as archive:
        for name in PACKED:
            if not (folder / name).is_dir():
                continue
            for file in files_below(folder / name):
                gone = next(
                    (out for home, out in rounds.items() if home in file.parents), [WEIGHTS]
                )
                if kind_of(file.name) not in gone and file.name != KEPT and not _compiled(file):
                    _add(archive, file.relative_to(folder), read_bytes(file, MOST_BYTES))
        for home, out in rounds.items():  # each is a results folder of its own
            about = canonical_json({"left_out": out}).encode()
            _add(archive, (home / KEPT).relative_to(folder), about)
    return sink.getvalue()


def _left_out(tuning: Results) -> list[str]:
    """Return what a round of tuning is kept without: measurements too, unless one chose the values.

    Each value that was compared is in evaluation.json and in steps.parquet.
    """
    compared = {tuning.metrics[name].record for name in tuning.study.metrics}
    return [WEIGHTS] if compared & {"probes", "parts"} else [WEIGHTS, MEASUREMENTS]


def _compiled(file: Path) -> bool:
    return "__pycache__" in file.parts


def _add(archive: tarfile.TarFile, name: Path, content: bytes) -> None:
    about = tarfile.TarInfo(name.as_posix())
    about.size = len(content)
    archive.addfile(about, io.BytesIO(content))


def _unpack(kept: Path, folder: Path) -> None:
    for file in sorted(kept.iterdir()):
        if file.suffix in PLAIN and file.name[0] != ".":
            (folder / file.name).write_bytes(read_bytes(file, MOST_BYTES))
    unpack_records(kept / PACKED_RECORDS, folder, PACKED)


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
    """Damage of an archive, beside what `tarfile` finds."""


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
        """Yield the next `size` bytes, a MiB at a time, which end with their last block."""
        if size > self._left:
            raise _DamagedError(f"more than {self._most:,} bytes in it, too many for its own size")
        for start in range(0, size, MIB):
            yield self._read(min(MIB, size - start))
        self._read(-size % BLOCK)

    def block(self) -> bytes:
        """Return the next block."""
        return b"".join(self.pieces(BLOCK))

    def _read(self, size: int) -> bytes:
        self._left -= size
        content = self._file.read(size)
        if len(content) < size:
            raise _DamagedError("it ends too early")
        return content


def _members(stream: _Stream) -> Iterator[tuple[str, int]]:
    """Yield name and size of each file; the content is to be taken before the next."""
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
    """Return the path that a pax header states."""
    stated = _PATH.fullmatch(header)
    if not stated or int(stated[2]) != len(stated[1]):
        raise _DamagedError("a header that is none of a path")
    return os.fsdecode(stated[1].partition(b"=")[2][:-1])


def _require_record(name: str, homes: tuple[str, ...]) -> PurePosixPath:
    """Return where a file belongs, relative. Raises _DamagedError for what `keep` never writes."""
    path = PurePosixPath(name)
    ours = 1 < len(path.parts) <= MOST_PARTS and path.parts[0] in homes
    if not ours or _CONTROL.search(name) or any(part.startswith(".") for part in path.parts):
        raise _DamagedError(f"it holds {name[:100]!r}, which is no record")
    return path
