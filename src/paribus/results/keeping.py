"""A finished study without its weights: small enough to be kept beside the code.

<kept>/
  kept.json           the root digest, what was left out, and what was thinned
  records.tar.xz      analysis.json, and every sealed record of every trial but weights: trials/,
                      tuning/ (without what probes and held-out measures say in detail), test/, and
                      what they rest on: tasks/, sources/
  study.json ...      the other files of the results folder, as they are

The page and the tables are made from these (`paribus unpack`, `paribus report`). All together has
at most MOST_KEPT bytes: where it would be more, detail is thinned that no verdict is computed from,
step by step (THINNING), and kept.json says what, with the digest of every file that was thinned.
Manifests stay as they are: they hold the digests of the whole files and of the weights, so the root
digest is that of the whole study, and what is trained again can be compared (`studies/retrain.py`).

An archive may be damaged or made to do damage. Regular files alone are taken out of it, into the
folders of records; no more is read than an archive of that size holds, and the first thing that is
wrong ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import math
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.metric import QUESTIONS, Metric
from paribus.results.formats import read_json, table_bytes, write_json
from paribus.results.read import Results, load_results
from paribus.results.store import KEPT, PACKED_RECORDS, TUNING_FOLDER, ResultsFolder, root_digest
from paribus.results.trial_folder import MEASUREMENTS, WEIGHTS, kind_of
from paribus.study import Study
from paribus.untrusted_io import MIB, files_below, is_regular, open_regular, read_bytes

MOST_BYTES = 4096 * MIB  # of an archive, and of all that is in it
# What an archive may hold for its own size. The project's 20 kept studies have 3 to 14 bytes for
# each of theirs, one of a model with 6,000 parameters 24; and a file for 400 to 1,400 bytes. Zeros
# have 7,000, and files with nothing in them one for 1.5.
MOST_RATIO = 250
BYTES_PER_FILE = 64
# And whatever its size, what is unpacked in a tenth of a second.
ALWAYS_BYTES = 64 * MIB
ALWAYS_FILES = 1024
PARTS = 6  # of the path of a record
MOST_PARTS = 64  # and of any: the folders of own code are the user's

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MOST_KEPT = 1_500_000  # bytes of a kept study, all files together
GAIN = 0.6  # the least share that compressing well leaves of what compressing fast does
# Folders that go into the archive with a file that is large, and files that are kept as they are.
PACKED = ("sources", "tasks", "test", "trials", TUNING_FOLDER)
ANALYSIS = "analysis.json"
NEEDED = ("study.json", "registration.json", ANALYSIS, "verdict.json")
PLAIN = (".json", ".parquet")
LEFT_OUT = frozenset({"live.json", KEPT})
# What a results folder is put right by; a kept study is not run again where it lies.
RUN_AGAIN = re.compile(r"(?:restore it, or )?delete \S[^;]*? and run again")


def is_kept(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a study that `keep` wrote."""
    return is_regular(Path(path) / PACKED_RECORDS)


Thin = Callable[[pa.Table, Results, frozenset[str]], pa.Table]


@dataclass(frozen=True)
class Thinning:
    """A step that makes a kept study smaller.

    Attributes:
        file: the record of every trial that it is about.
        says: what is left, as kept.json states it.
        thin: the smaller table, by the trial's results and the keys of what the study compares.
        home: the folder it is about: `trials`, `test` or the tuning's.
    """

    file: str
    says: str
    thin: Thin
    home: str = "trials"


def _rows(every: int) -> Thin:
    """Return a change: every so many rows are kept, and the last, which endpoints are read from."""
    return lambda table, *_: table.take(sorted({*range(0, len(table), every), len(table) - 1}))


def _columns(*names: str) -> Thin:
    """Return a change: these columns are kept, and those that the study compares."""

    def thin(table: pa.Table, _: Results, compared: frozenset[str]) -> pa.Table:
        wanted = {*names, *compared}
        return table.select([name for name in table.column_names if name in wanted])

    return thin


def _compared_parts(table: pa.Table, _: Results, compared: frozenset[str]) -> pa.Table:
    rows = zip(table["measure"].to_pylist(), table["part"].to_pylist(), strict=True)
    return table.filter(pa.array([p == "all" or f"{m}/{p}" in compared for m, p in rows]))


def _added_up(table: pa.Table, results: Results, _: frozenset[str]) -> pa.Table:
    """Return one row of sums, where the verdict is of the blocks of another text."""
    if results.judged is results:
        return table
    columns = [(field.type, table[field.name].to_pylist()) for field in table.schema]
    arrays = [pa.array([None if None in v else math.fsum(v)]).cast(kind) for kind, v in columns]
    return pa.Table.from_arrays(arrays, schema=table.schema)


# In this order, each after the others, until the study is small enough.
THINNING = (
    Thinning("probes.parquet", "every 4th measured step, and the last", _rows(4)),
    Thinning("probes.parquet", "every 16th measured step, and the last", _rows(16)),
    Thinning("probes.parquet", "the first measured step, and the last", _rows(MOST_BYTES)),
    Thinning(
        "items.parquet",
        "whether each question was answered right",
        _columns("task", "shots", "item", "correct"),
    ),
    Thinning(
        "items.parquet",
        "whether each question was answered right",
        _columns("task", "shots", "item", "correct"),
        TUNING_FOLDER,
    ),
    Thinning(
        "probes.parquet",
        "the first measured step, and the last",
        _rows(MOST_BYTES),
        TUNING_FOLDER,
    ),
    Thinning(
        "evaluation.parquet",
        "the whole text, and parts that are compared",
        _compared_parts,
        TUNING_FOLDER,
    ),
    Thinning("evaluation.parquet", "the whole text, and parts that are compared", _compared_parts),
    Thinning("blocks.parquet", "their sum, of the validation text", _added_up),
    Thinning(
        "evaluation.parquet",
        "the whole text, and parts that are compared",
        _compared_parts,
        "test",
    ),
    Thinning(
        "steps.parquet",
        "losses and learning rates",
        _columns("step", "train_loss", "learning_rate"),
        TUNING_FOLDER,
    ),
    Thinning(
        "steps.parquet",
        "losses and learning rates",
        _columns("step", "train_loss", "learning_rate"),
    ),
)


def keep(
    results: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    most: int | None = MOST_KEPT,
) -> Path:
    """Write the finished study in `results` to the new folder `out`, without its weights.

    Args:
        most: bytes that it may have; None for any number, of which nothing is thinned.

    Raises ParibusError where a trial or the analysis is missing, a record was changed, `out` is
    there already, or what verdicts are computed from is larger than `most`.
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
            plain = file.suffix in PLAIN and file.name[0] != "." and file.name != ANALYSIS
            if plain and file.name not in LEFT_OUT:
                write_bytes(new / file.name, read_bytes(file, MOST_BYTES))
        root = _pack_within(loaded, new, most)
        try:
            _require_read_back(new, root)
        except ParibusError as error:
            raise ParibusError(
                f"{target} was not written, as it could not be read back "
                f"({of_kept(str(error), new, target)}); {folder} is as it was"
            ) from error
    return target


def _pack_within(results: Results, new: Path, most: int | None) -> str:
    """Write the archive and kept.json, thinned until all is small enough; return the root."""
    content = _records(results)
    root, archive, size = root_digest(results.path), new / PACKED_RECORDS, 0
    for step in (None, *THINNING):
        if step:
            _thin(content, results, step)
        write_json(new / KEPT, {**content[results.path].record, "root": root})
        beside = sum(f.stat().st_size for f in new.iterdir() if f != archive)
        # Compressing well takes ten times as long, and gains a few per cent of what is a table.
        fast = beside + len(_archive(content, results.path, preset=0))
        if most is not None and fast * GAIN > most and step is not THINNING[-1]:
            continue
        write_bytes(archive, _archive(content, results.path))
        size = beside + archive.stat().st_size
        if most is None or size <= most:
            return root
    raise ParibusError(
        f"{results.path}: what its verdict is computed from takes {size:,} bytes, and a kept study "
        f"has at most {most:,}; state a larger limit to keep it"
    )


@dataclass
class _Home:
    """A results folder that is kept: the study's own, or a round of tuning's.

    Attributes:
        files: by path below the study's folder.
        thinned: by file, what is left of it.
        changed: by path below this folder, the digest of what is left.
    """

    results: Results
    files: dict[Path, bytes]
    left_out: list[str]
    thinned: dict[str, str]
    changed: dict[str, str]

    @property
    def record(self) -> dict[str, Any]:
        """Its kept.json."""
        about: dict[str, Any] = {"left_out": self.left_out}
        if self.changed:
            about |= {"thinned": self.thinned, "sha256": self.changed}
        return about


def _records(results: Results) -> dict[Path, _Home]:
    homes = {}
    for one in (*results.tuning_rounds, results):
        there = ResultsFolder(one.path).kept_record
        left_out = [WEIGHTS] if one is results else _left_out(one, results.study)
        homes[one.path] = _Home(one, {}, left_out, dict(there.thinned), dict(there.sha256))
    for name in PACKED:
        for file in files_below(results.path / name) if (results.path / name).is_dir() else ():
            home = next(home for path, home in homes.items() if path in file.parents)
            if kind_of(file.name) in home.left_out or file.name == KEPT or _compiled(file):
                continue
            home.files[file] = read_bytes(file, MOST_BYTES)
    return homes


def _thin(homes: Mapping[Path, _Home], results: Results, step: Thinning) -> None:
    for home in homes.values():
        if (home.results is results) != (step.home != TUNING_FOLDER):
            continue
        top = "trials" if step.home == TUNING_FOLDER else step.home
        compared = frozenset(metric.key for metric in _compared(home.results, results.study))
        for file, content in home.files.items():
            name = file.relative_to(home.results.path)
            if name.parts[0] != top or name.name != step.file:
                continue
            table = pq.read_table(pa.BufferReader(content))
            smaller = step.thin(table, home.results, compared) if len(table) else table
            if smaller.shape == table.shape:
                continue
            home.files[file] = table_bytes(smaller)
            home.changed[name.as_posix()] = hashlib.sha256(home.files[file]).hexdigest()
            of_test = "test/" if step.home == "test" else ""
            home.thinned[of_test + step.file] = step.says


def _archive(homes: Mapping[Path, _Home], folder: Path, preset: Literal[0, 9] = 9) -> bytes:
    """Return the archive: equal records give equal bytes."""
    sink = io.BytesIO()
    with tarfile.open(
        fileobj=sink, mode="w:xz", preset=preset, format=tarfile.PAX_FORMAT
    ) as archive:
        _add(archive, Path(ANALYSIS), read_bytes(folder / ANALYSIS, MOST_BYTES))
        files = {file: content for home in homes.values() for file, content in home.files.items()}
        for file in sorted(files, key=lambda file: file.relative_to(folder).as_posix()):
            _add(archive, file.relative_to(folder), files[file])
        for path, home in homes.items():  # each is a results folder of its own
            if path != folder:
                about = canonical_json(home.record).encode()
                _add(archive, (path / KEPT).relative_to(folder), about)
    return sink.getvalue()


def read_analysis(kept: str | os.PathLike[str]) -> Any:
    """Return analysis.json of a kept study, the first file in its archive. Raises ParibusError."""
    path = Path(kept)
    if is_regular(path / ANALYSIS):  # of studies that were kept earlier
        return read_json(path / ANALYSIS)
    with tempfile.TemporaryDirectory(prefix="paribus-kept-") as folder:
        unpack_records(path / PACKED_RECORDS, Path(folder), PACKED, only=ANALYSIS)
        return read_json(Path(folder) / ANALYSIS)


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


def _left_out(tuning: Results, study: Study) -> list[str]:
    """Return what a round of tuning is kept without: measurements too, unless something is compared
    by them. Each other value is in evaluation.json and in steps.parquet.
    """
    compared = _compared(tuning, study)
    of_blocks = [m for m in compared if m.items != QUESTIONS and study.inference.of_new_items(m)]
    if of_blocks or {"probes", "parts"} & {metric.record for metric in compared}:
        return [WEIGHTS]
    return [WEIGHTS, MEASUREMENTS]


def _compared(results: Results, study: Study) -> list[Metric]:
    """Return what a study compares, or chose its values by, as far as these trials have it."""
    names = dict.fromkeys((*results.study.metrics, *study.metrics))
    return [results.metrics[name] for name in names if name in results.metrics]


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


class _DamagedError(tarfile.TarError):
    """Damage of an archive, beside what `tarfile` finds."""


def unpack_records(
    archive: Path, folder: Path, homes: tuple[str, ...], only: str | None = None
) -> None:
    """Write every file in `archive` below `folder`, in one of the folders `homes`.

    Raises ParibusError where it is no archive that `keep` has written.
    """
    with open_regular(archive, MOST_BYTES) as handle, lzma.LZMAFile(handle) as unpacked:
        size = os.fstat(handle.fileno()).st_size
        stream = _Bounded(unpacked, min(MOST_BYTES, ALWAYS_BYTES + MOST_RATIO * size))
        try:
            with tarfile.open(fileobj=stream, mode="r|") as members:  # type: ignore[call-overload]
                places = 0  # every folder on the way to a file may be a new one
                for member in members:
                    places += member.name.count("/") + 1
                    if places > PARTS * (ALWAYS_FILES + size // BYTES_PER_FILE):
                        raise _DamagedError(f"more files in it than its {size:,} bytes can be of")
                    target = folder / _require_record(member, homes)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    content = members.extractfile(member)
                    assert content is not None  # a regular file
                    with target.open("xb") as written:
                        shutil.copyfileobj(content, written)
                    if member.name == only:
                        return
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, MemoryError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ParibusError(
                f"{archive} is not the archive that was written ({why or 'too large'}); restore it"
            ) from None


class _Bounded:
    """The bytes of an archive as they are unpacked, and no more than `most` of them."""

    def __init__(self, file: lzma.LZMAFile, most: int) -> None:
        self._file, self._left, self._most = file, most, most

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise _DamagedError(f"more than {self._most:,} bytes in it, too many for its own size")
        return content


def _require_record(member: tarfile.TarInfo, homes: tuple[str, ...]) -> PurePosixPath:
    """Return where a file belongs, relative. Raises _DamagedError for what `keep` never writes."""
    name = member.name
    path = PurePosixPath(name)
    ours = (1 < len(path.parts) <= MOST_PARTS and path.parts[0] in homes) or name == ANALYSIS
    ours = ours and member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    if not ours or _CONTROL.search(name) or any(part.startswith(".") for part in path.parts):
        raise _DamagedError(f"it holds {name[:100]!r}, which is no record")
    return path
