"""The results folder of a study: layout, writing and integrity checks.

docs/reference/files.md lists the files of a folder and of a trial. The folder's manifest.json
contains the digests of the study-wide records (`OF_THE_STUDY`). A trial's manifest.json contains
the digests of its records; it is written last and marks the trial as finished. Files that
docs/reference/files.md does not list:

  .run/                         queue of a run in progress (`paribus.runs.queue`)
  trials/<arm>/seed-<n>/        records of custom trainers and command trainers
    item_scores.parquet         score of each item
    series.parquet              measurements during training, by metric and step
    output.log, machine.json    output of the training program, and its machine
    trial.jsonl                 measurements reported by the program (`paribus.trial`)
  runs/<arm>/seed-<n>/out/      files written by the program
  repeats/<arm>/seed-<n>.<k>/   conflicting record of a trial, written by a second worker
  worktrees/                    checkouts of programs' commits during a run, and their output files
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import SoftFileLock, Timeout

from paribus.digests import changes
from paribus.errors import ParibusError
from paribus.files import errors_named, file_digest, sweep
from paribus.numbers import some
from paribus.results.formats import (
    Folder,
    read_as,
    read_json,
    read_seals,
    seal_problem,
    write_json,
    write_study,
)
from paribus.results.records import RunsRecord
from paribus.results.trial_folder import MANIFEST, TrialFolder
from paribus.study import Study, read_study
from paribus.study.custom_code import sources_folder
from paribus.study.study import substance
from paribus.study.tuning_study import FOLDER as TUNING_FOLDER
from paribus.untrusted_io import MIB, is_regular, open_regular

THROUGHPUT = "throughput.parquet"
REPEATED = "repeated.json"
TEST_PART = "test_part.json"
TEST = "test.json"
CAMPAIGN, IDEAS = "campaign.json", "ideas"  # in the folder of a campaign
LEDGER = "ledger.json"
DATA = "data.json"
LOOKS = "looks.json"
RUNS = "runs.json"
LOCK = ".lock"
TUNING = "tuning.json"
# Records of a whole study, which `manifest.json` of the results folder seals.
OF_THE_STUDY = (DATA, LEDGER, LOOKS, REPEATED, RUNS, TEST, TEST_PART, THROUGHPUT, TUNING)
ARCHIVE = "records.tar.xz"  # of an archive: all records below the top level
ARCHIVE_BYTES = 4096 * MIB
BESIDE = ("study.json", "registration.json")  # an extracted folder has copies of these files


@dataclass(frozen=True)
class ResultsFolder(Folder):
    """The results folder of a study, or an archive of it."""

    def trial(self, arm: str, seed: int) -> TrialFolder:
        """Return the folder for a trial's records, which may not exist yet."""
        path = self.records / "trials" / arm / f"seed-{seed}"
        return TrialFolder(path, arm, seed, not self.is_archive and not self.is_tuning)

    @cached_property
    def is_archive(self) -> bool:
        """True if `paribus archive` wrote the folder, which is then read-only without weights."""
        return is_regular(self.path / ARCHIVE)

    @property
    def records(self) -> Path:
        """Folder that contains trials/, tuning/, test/, tasks/ and sources/.

        For an archive, this is a temporary folder with the extracted files.
        """
        if not self.is_archive:
            return self.path
        archive = self.path / ARCHIVE
        return Path(_extract(archive.absolute(), archive.stat().st_mtime_ns).name)

    @property
    def is_tuning(self) -> bool:
        """True if the folder belongs to a tuning study, whose weights are deleted."""
        return self.path.name == TUNING_FOLDER and ResultsFolder(self.path.parent).exists

    @property
    def exists(self) -> bool:
        """True if the folder contains a study.json."""
        return is_regular(self.path / "study.json")

    @property
    def tuning_trials(self) -> ResultsFolder:
        """Results folder of the tuning study, which may not exist."""
        return ResultsFolder(self.records / TUNING_FOLDER)

    def _sealed(self) -> dict[str, str]:
        """Return the digests of the study-wide records, keyed by file name."""
        path = self.path / MANIFEST
        return read_seals(path) if os.path.lexists(path) else {}

    def has_sealed(self, name: str) -> bool:
        """Return whether the study-wide record `name` is complete and listed in the manifest.

        Raises ParibusError if the record does not match its digest in the manifest.
        """
        path, digest = self.path / name, self._sealed().get(name)
        if digest is None:
            return False  # it is sealed last: what is there without it is half of a pair
        if problem := seal_problem(path, digest):
            raise ParibusError(f"{self.path}: {problem}; restore the file", code="changed")
        return True

    def seal(self, name: str, value: Mapping[str, Any]) -> None:
        """Write the study-wide record `name`, and add its digest to the manifest."""
        with self.sealing(name):
            write_json(self.path / name, dict(value))

    @contextlib.contextmanager
    def sealing(self, name: str) -> Iterator[None]:
        """Context manager that updates the digest of the record `name` after the body writes it."""
        self._reseal(name, None)
        yield
        self._reseal(name, file_digest(self.path / name))

    def _reseal(self, name: str, digest: str | None) -> None:
        sealed = self._sealed()
        if sealed.get(name) != digest:
            kept = {key: value for key, value in sealed.items() if key != name}
            write_json(self.path / MANIFEST, kept | ({name: digest} if digest else {}))

    def read_sealed(self, name: str) -> dict[str, Any]:
        """Return the content of the study-wide record `name`, or {} if it does not exist."""
        return read_json(self.path / name) if self.has_sealed(name) else {}

    def read_runs(self) -> RunsRecord | None:
        """Return the content of runs.json, or None if the study does not read finished runs."""
        return read_as(RunsRecord, self.path / RUNS) if self.has_sealed(RUNS) else None

    def runs_changed(self) -> str:
        """Return a message if input files changed after `paribus judge` read them, else "".

        Recorded paths are relative to this folder, so that folder and files can be moved together.
        """
        record, home = self.read_runs(), self.path.absolute()
        judged = record.sha256 if record else {}
        paths = {Path(os.path.normpath(home / name)): digest for name, digest in judged.items()}
        files = [
            os.path.relpath(path)
            for path, digest in paths.items()
            if is_regular(path) and file_digest(path) != digest
        ]
        many = f"{len(files)} files" if files[1:] else "a file"
        return f"{many} changed after {self.path} was judged, such as {files[0]}" if files else ""

    def read_repeated(self, arms: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the entries of repeated.json for `arms`, excluding entries for changed trials."""
        return {
            arm: again
            for arm, again in self.read_sealed(REPEATED).items()
            if arm in arms and again["trial"] == self.trial(arm, again["seed"]).seal
        }

    def has_timed(self, trials: Iterable[tuple[str, int]]) -> bool:
        """Return whether throughput.parquet contains measurements of all `trials`."""
        if not self.has_sealed(THROUGHPUT):
            return False
        table = self.read_columns(THROUGHPUT, ["arm", "seed"])
        return set(trials) <= {
            *zip(table["arm"].to_pylist(), table["seed"].to_pylist(), strict=True)
        }

    def read_study(self, *, trust: bool = False) -> Study:
        """Read the folder's study.json. Raises ParibusError if the file does not exist.

        Set `trust` to allow the study to run its custom code.
        """
        if not self.exists:
            raise ParibusError(
                f"{self.path} is not a results folder, because it has no study.json; "
                "specify a folder written by `paribus run`",
                code="missing",
            )
        folder = sources_folder(self.records)
        return read_study(self.path / "study.json", folder=folder, foreign=not trust)

    def require_home(self) -> None:
        """Raise ParibusError if no study can be written to the folder."""
        # Hidden files are a lock, or what an interrupted first write has left.
        problem = ""
        if self.is_archive:
            problem = "is a read-only archive"
        elif self.path.exists() and not self.path.is_dir():
            problem = "is a file"
        elif not self.exists and any(path.name[0] != "." for path in self.path.glob("*")):
            problem = "contains files but no study"
        if problem:
            raise ParibusError(
                f"{self.path} {problem}; choose another folder with --results", code="different"
            )

    def require_same(self, study: Study) -> None:
        """Raise ParibusError if the folder contains another study or unrelated files."""
        self.require_home()
        if not self.exists:
            return
        kept = self.read_study()
        dumps = [substance(each.model_dump(mode="json")) for each in (kept, study)]
        differing = changes(*dumps)
        if not differing:
            return
        by_metric = ({"endpoints": {e["metric"]: e for e in d["endpoints"]}} for d in dumps)
        if "endpoints" in differing and (endpoints := changes(*by_metric)):
            del differing["endpoints"]
            differing |= endpoints
        word = study.format.word
        texts = [f"{word(key)} = {a!s:.40}, not {b!s:.40}" for key, (a, b) in differing.items()]
        way_out = "give the study another name, or choose another folder with --results"
        if differing.keys() <= {"seeds", "stages"}:
            way_out = f"add seeds with `paribus extend {self.path}` at its end, or {way_out}"
        raise ParibusError(
            f"{self.path} contains a different study ({some(texts, MOST_NAMED)}); {way_out}",
            code="different",
        )

    def create(self, study: Study) -> None:
        """Write study.json. Raises ParibusError if the folder contains a different study."""
        self.require_same(study)
        write_study(self.path / "study.json", study)

    @contextlib.contextmanager
    def lock(self, *, swept: bool = True) -> Iterator[None]:
        """Lock this folder against other runs. Raises ParibusError if another run holds the lock.

        The lock only avoids duplicate work: trials are completed by an atomic rename, so concurrent
        runs cannot corrupt them. Partial files of killed runs are removed first; set `swept` to
        False if other processes may be writing. On exit, the folder and the parents created for it
        are removed if they are empty.
        """
        new = [parent for parent in (self.path, *self.path.parents) if not parent.exists()]
        try:
            with run_lock(self.path):
                if swept:
                    sweep(self.path)
                yield
        finally:
            # The folder may have been deleted meanwhile, or hold something.
            with contextlib.suppress(OSError):
                for path in new:
                    path.rmdir()


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Create `folder` if necessary, and lock it. Raises ParibusError if another run holds the lock.

    Stale locks of dead processes on this host are broken.
    """
    lock = SoftFileLock(folder / LOCK)
    with errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            process, host = lock_holder(folder)
            raise ParibusError(
                f"another run is writing to {folder} (process {process} on {host}); wait for it, "
                "choose another folder with --results, or, if that run has ended, delete "
                f"{folder / LOCK}",
                code="in_use",
            ) from None
    try:
        yield
    finally:
        lock.release()


def lock_holder(folder: Path) -> tuple[int, str]:
    """Return (process ID, host) from the lock file of `folder`, or (0, "") if it is unlocked."""
    with contextlib.suppress(OSError, ValueError):
        process, host, *_ = (folder / LOCK).read_text("utf-8").split()
        return int(process), host.partition("?")[0]  # from there on, the container
    return 0, ""


@cache
def _extract(archive: Path, _time_ns: int) -> TemporaryDirectory[str]:
    """Extract an archive to a temporary folder, once per process.

    The folder is removed when the process exits. Raises ParibusError if the archive is damaged.
    """
    folder = TemporaryDirectory(prefix="paribus-archive-", ignore_cleanup_errors=True)
    try:
        with open_regular(archive, ARCHIVE_BYTES) as file, tarfile.open(fileobj=file) as members:
            members.extractall(folder.name, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise ParibusError(
            f"{archive} is damaged ({error}); restore the file", code="changed"
        ) from None
    for name in BESIDE:
        if is_regular(archive.parent / name):
            shutil.copyfile(archive.parent / name, Path(folder.name, name))
    return folder


MOST_NAMED = 3  # differences that an error names
OUTPUTS = "runs"  # of the trainer `command`: what its programs write, trial by trial
SEALED = ("registration*.json", "manifest.json")
SEALED_TRIALS = "trials/*/*/manifest.json"


def root_digest(path: Path) -> str:
    """Return the root digest of a results folder, which covers all registrations and manifests.

    This is the SHA-256 of `sha256sum` output for these files, sorted by path. Raises ParibusError
    if a file cannot be read.
    """
    records = ResultsFolder(path).records
    files = {file.name: file for form in SEALED for file in path.glob(form)}
    files |= {file.relative_to(records).as_posix(): file for file in records.glob(SEALED_TRIALS)}
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(os.fsencode(f"{file_digest(files[name])}  {name}\n"))
    return total.hexdigest()


def results_folder(study: Study, results: str | os.PathLike[str] | None) -> ResultsFolder:
    """Return a study's results folder: `results`, or by default `results/NAME` beside its file.

    For built-in examples and studies from a results folder, the default is `results/NAME` in the
    working directory.
    """
    if results:
        return ResultsFolder(Path(results))
    home = study.folder
    if home == Path.cwd() or (home.parent / "study.json").exists():
        home = Path()
    return ResultsFolder(home / "results" / study.name)
