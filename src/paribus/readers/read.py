"""Files in, runs out: which files, which reader, and what became of each."""

from __future__ import annotations

import glob
import importlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from paribus.errors import ParibusError, nearest
from paribus.readers.copies import counted_once
from paribus.readers.facts import Finding
from paribus.readers.lines import FORMS, load_form, make_reader
from paribus.readers.port import Columns, Reader, Run, SkippedError, Source
from paribus.study.choices import find_declared
from paribus.untrusted_io import files_below

PACKAGE = "paribus.readers"
MODULES = ("chart_csv", "json_forms", "lines", "lm_eval", "tables", "tensorboard", "trackers")
WORD = "--reader"
PACKED = (".zst", ".zip", ".tgz", ".tar")
NO_LOGS = (".md", ".rst", ".html", ".py", ".ipynb")  # which quote logs; read where they are named

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass
class Selection:
    """The selected runs by arm label.

    Attributes:
        runs: by label.
        excluded: by label, how many runs that failed were left out.
        findings: what a reader must know of the choice.
    """

    runs: dict[str, list[Run]]
    excluded: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Reading:
    """The runs in a set of files, and the files that were refused or skipped.

    Attributes:
        runs: each run once, in the order of the files.
        refused: files that could not be read, and why.
        skipped: files of a folder that are of no form that is known, and what is said of them.
        copies: runs that were there already, and the source of the first: a log and the standard
            output beside it.
        files: how many were looked at.
        given: the files, folders and patterns that were named.
        paths: those of a form that is known.
        notes: what readers say of files besides, a sentence each.
        selection: those of the runs that are compared, once they were chosen.
    """

    runs: list[Run] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0
    given: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    selection: Selection | None = None

    def add(self, other: Reading) -> None:
        """Add what became of further files."""
        for part in ("runs", "refused", "skipped", "paths", "given", "notes"):
            getattr(self, part).extend(getattr(other, part))
        self.files += other.files

    @property
    def counts(self) -> str:
        """`37 files: 31 read (120 runs), 4 refused, 2 skipped`."""
        read = self.files - len(self.refused) - len(self.skipped)
        copies = f", {len(self.copies)} of them copies" if self.copies else ""
        return (
            f"{self.files} files: {read} read ({len(self.runs) + len(self.copies)} runs{copies}), "
            f"{len(self.refused)} refused, {len(self.skipped)} skipped"
        )


@cache
def shipped_readers() -> dict[str, Reader]:
    """Return the readers in this folder and the forms that `forms/` declares, by name."""
    modules = (importlib.import_module(f"{PACKAGE}.{name}") for name in MODULES)
    readers = [value for module in modules for value in vars(module).values()]
    readers += [make_reader(load_form(path)) for path in sorted(FORMS.glob("*.toml"))]
    return {reader.name: reader for reader in readers if isinstance(reader, Reader)}


def read(
    paths: Paths,
    reader: str | Reader | None = None,
    *,
    columns: Columns | None = None,
    once: bool = True,
    needed: bool = True,
) -> Reading:
    """Return the runs in files, in files below folders and in files that match patterns.

    `reader` is one that every file is read with: a name, the user's own as `file.py:name`, a form
    that a TOML file declares, or a Reader. Without it each file is recognised by its name and its
    first and last bytes. `columns` says what the columns of tables mean. With `once` a run that two
    files hold is counted once; whoever names arms by folders first calls `counted_once` afterwards.

    Raises ParibusError where there is no such reader and, if files are `needed`, where a path does
    not exist or a pattern matches nothing. A file that cannot be read is refused, and the others
    are read.
    """
    forced = _find_reader(reader) if isinstance(reader, str) else reader
    known = list(shipped_readers().values())
    reading = Reading(given=_given(paths))
    for path, is_named in _files(reading.given, needed=needed):
        reading.files += 1
        source = Source(path, columns)
        try:
            chosen = forced or _recognised(source, known, is_named)
            if chosen is None:
                reading.skipped.append((path, "of no form that is known"))
                continue
            reading.paths.append(path)
            runs = list(_runs(chosen, source))
            if not runs:
                message = f"reader '{chosen.name}' finds no run in it"
                raise ParibusError(f"{path}: {message}") if is_named else SkippedError(message)
            reading.runs += runs
            reading.notes += source.notes
        except SkippedError as error:
            reading.skipped.append((path, str(error)))
        except ParibusError as error:
            reading.refused.append((path, str(error)))
    if once:
        reading.runs, reading.copies = counted_once(reading.runs)
    return reading


def _find_reader(name: str) -> Reader:
    if name.endswith(".toml"):
        return make_reader(load_form(Path(name)))
    if name in (shipped := shipped_readers()):
        return shipped[name]
    if ":" not in name:
        raise ParibusError(
            f"{WORD}: there is no form '{name}': {nearest(name, shipped)}; your own is a TOML "
            "file, or 'file.py:name'"
        )
    return find_declared(name, Reader, WORD, PACKAGE, Path.cwd())


def _runs(chosen: Reader, source: Source) -> Iterator[Run]:
    try:
        runs = list(chosen.read(source))
    except ParibusError:
        raise
    except Exception as error:  # it may be the user's code
        if chosen in shipped_readers().values():
            raise
        message = f"{type(error).__name__}: {error}"
        raise ParibusError(f"{source.path}: reader '{chosen.name}' failed: {message}") from error
    for number, run in enumerate(runs, start=1):
        run.source = run.source or (source.path if number == 1 else f"{source.path}#{number}")
        run.reader = chosen.name
        yield run


def _recognised(source: Source, known: list[Reader], is_named: bool) -> Reader | None:
    """Return the reader of a file; None for a file of a folder that none reads."""
    if not is_named and source.name.lower().endswith(NO_LOGS):
        return None
    readers = [form for form in known if not form.general and form.detects(source)]
    # Tables lie about everywhere: in a folder they are meant where their columns are named.
    if not readers and (is_named or source.columns != Columns()):
        readers = [form for form in known if form.general and form.detects(source)]
    if len(readers) > 1:
        names = " or ".join(f"'{form.name}'" for form in readers)
        raise ParibusError(f"{source.path} may be read as {names}; say which with {WORD}")
    name = source.name.lower()
    if not readers and is_named and name.endswith(PACKED):
        raise ParibusError(f"{source.path} is compressed; unpack it first")
    if not readers and is_named:
        names = ", ".join(form.name for form in known)
        raise ParibusError(
            f"the form of {source.path} was not recognized; choose one with {WORD} ({names}), or "
            "your own, 'file.py:name'"
        )
    return readers[0] if readers else None


def files_at(paths: Paths) -> list[str]:
    """Return the existing files that `read` would look at."""
    return [path for path, _ in _files(_given(paths), needed=False)]


def _given(paths: Paths) -> list[str]:
    return [
        os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)
    ]


def _files(paths: Iterable[str], *, needed: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield every file once, and whether it was named itself. Raises ParibusError where a path that
    is `needed` leads to nothing."""
    seen: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            below = [(os.fspath(file), False) for file in files_below(Path(path))]
        elif not os.path.lexists(path) and glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))
            if not matches and needed:
                raise ParibusError(f"nothing matches {path}; correct the pattern")
            below = [(match, True) for match in matches if not os.path.isdir(match)]
        elif os.path.lexists(path):
            below = [(path, True)]
        elif not needed:
            continue
        else:
            raise ParibusError(f"{path} does not exist; correct the path")
        for file, is_named in below:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file, is_named
