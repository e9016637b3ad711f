"""Files in, runs out: which files, which reader, and what became of each."""

from __future__ import annotations

import filecmp
import glob
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from paribus.declared import declared
from paribus.errors import ParibusError, nearest
from paribus.readers.lines import FORMS, load_form, make_reader
from paribus.readers.port import Columns, Reader, Run, SkippedError, Source, seed_in
from paribus.readers.values import LEAST_OF_A_CURVE
from paribus.study.choices import find_declared
from paribus.untrusted_io import files_below

PACKAGE = "paribus.readers"
WORD = "--reader"
STATE, CHECKPOINT = "trainer_state.json", re.compile(r"checkpoint-\d+")
PACKED = (".zst", ".zip", ".tgz", ".tar")
NO_LOGS = (".md", ".rst", ".html", ".py", ".ipynb")  # which quote logs; read where they are named
IDENTITY = ("arm", "seed", "source_digest", "commit")  # facts in which no two copies differ

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


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
    """

    runs: list[Run] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0
    given: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
    forms = (make_reader(load_form(path)) for path in sorted(FORMS.glob("*.toml")))
    return declared(PACKAGE, Reader) | {reader.name: reader for reader in forms}


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


def counted_once(
    runs: Iterable[Run], arm: Callable[[Run], str] = lambda run: ""
) -> tuple[list[Run], list[tuple[str, str]]]:
    """Return the runs without those that were there already, and these with the other of each.

    A copy has equal values at all its steps, or is in a file of equal bytes, and says nothing else
    of the arm, the seed or the source: standard output beside the log, an earlier checkpoint of the
    same run. Trials of one file that tells no times are runs, whatever their values. `arm` says
    where an arm is named otherwise than by a fact. The longer one stays, and takes what only the
    other knows. Where times of training differ a program ran twice with equal results: that is for
    a judge to see.
    """
    kept: list[Run] = []
    copies: list[tuple[str, str]] = []
    by_start: dict[object, list[int]] = {}  # places in `kept`
    for run in runs:
        starts: list[tuple[object, ...]] = [
            (name, *map(_spelt, curve[:LEAST_OF_A_CURVE]))
            for name, curve in run.curves.items()
            if len(curve) >= LEAST_OF_A_CURVE
        ] or _whole(run)
        if folder := _trained_in(run):
            starts.append((folder, STATE))
        places = {place: None for start in starts for place in by_start.get(start, ())}
        same = next(
            (p for p in places if arm(kept[p]) == arm(run) and _is_copy(kept[p], run)), None
        )
        if same is None:
            same = len(kept)
            kept.append(run)
        else:
            longer, second = sorted((kept[same], run), key=_points, reverse=True)
            longer.facts = second.facts | longer.facts
            copies.append((second.source, longer.source))
            kept[same] = longer
        for start in starts:
            by_start.setdefault(start, []).append(same)
    return kept, copies


def without_shared_seed(runs: Iterable[Run], arm: Callable[[Run], str]) -> None:
    """Forget the seed that all runs have of one folder above them, `seed42_exps/`, where an arm has
    several: it tells none of them apart."""
    every = list(runs)
    if len(every) < 2:
        return
    above = os.path.commonpath([os.path.abspath(run.path) for run in every])
    seed = seed_in(above)
    arms = Counter(map(arm, every))
    if seed is None or max(arms.values()) < 2:
        return
    if all(run.facts.get("seed") == seed == seed_in(run.path) for run in every):
        for run in every:
            del run.facts["seed"]


def _points(run: Run) -> int:
    return sum(map(len, run.curves.values()))


def _is_copy(one: Run, other: Run) -> bool:
    """Return whether each curve of one is the beginning of the other's, or that of its."""
    files = one.path, other.path
    is_one_file = files[0] == files[1]
    if is_one_file and files[0] and not all("train_seconds" in run.facts for run in (one, other)):
        return False
    has_curve = any(len(curve) >= LEAST_OF_A_CURVE for curve in other.curves.values())
    if one.items != other.items:  # of files beside them
        return False
    shared = one.curves.keys() & other.curves.keys()
    is_one_run = bool(shared and _trained_in(one)) and _trained_in(one) == _trained_in(other)
    if not has_curve and not is_one_run and (is_one_file or not filecmp.cmp(*files, shallow=False)):
        return False
    pairs = [(one.curves[name], other.curves[name]) for name in shared]
    lengths = [(len(first), len(second)) for first, second in pairs]
    if any(a < b for a, b in lengths) and any(a > b for a, b in lengths):
        return False
    identity = IDENTITY if any(a != b for a, b in lengths) else (*IDENTITY, "train_seconds")
    if any(
        one.facts[name] != other.facts[name]
        for name in identity
        if name in one.facts and name in other.facts
    ):
        return False
    return all(
        list(map(_spelt, first[: len(second)])) == list(map(_spelt, second[: len(first)]))
        for first, second in pairs
    )


def _whole(run: Run) -> list[tuple[object, ...]]:
    """Return what a run without a curve has in common with that of a file of equal bytes."""
    path = run.path
    number = run.source.removeprefix(path)
    if not os.path.isfile(path):
        return []
    scores = tuple(_spelt((0.0, value)) for value in run.scores.values())
    return [(os.path.getsize(path), number, *run.scores, *scores)]


def _trained_in(run: Run) -> str:
    """Return the folder of a run whose checkpoints each tell it so far; empty where none is."""
    folder, name = os.path.split(run.path)
    if name != STATE:
        return ""
    return os.path.dirname(folder) if CHECKPOINT.fullmatch(os.path.basename(folder)) else folder


def _spelt(point: tuple[float, float]) -> tuple[float, float | None]:
    return point[0], None if math.isnan(point[1]) else point[1]  # NaN is not equal to itself


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
    readers = [one for one in known if not one.general and one.detects(source)]
    # Tables lie about everywhere: in a folder they are meant where their columns are named.
    if not readers and (is_named or source.columns != Columns()):
        readers = [one for one in known if one.general and one.detects(source)]
    if len(readers) > 1:
        names = " or ".join(f"'{one.name}'" for one in readers)
        raise ParibusError(f"{source.path} may be read as {names}; say which with {WORD}")
    name = source.name.lower()
    if not readers and is_named and name.endswith(PACKED):
        raise ParibusError(f"{source.path} is compressed; unpack it first")
    if not readers and is_named:
        names = ", ".join(one.name for one in known)
        raise ParibusError(
            f"{source.path} is of no form that is known; choose one with {WORD} ({names}), or your "
            "own, 'file.py:name'"
        )
    return readers[0] if readers else None


def files_at(paths: Paths) -> list[str]:
    """Return the existing files that `read` would look at."""
    return [path for path, _ in _files(_given(paths), needed=False)]


def is_known(path: str) -> bool:
    """Return whether a file is of a form that is known, tables among them."""
    source = Source(path, Columns())
    if source.name.lower().endswith(NO_LOGS):
        return False
    try:
        return any(reader.detects(source) for reader in shipped_readers().values())
    except (ParibusError, OSError):
        return False


def _given(paths: Paths) -> list[str]:
    return [
        os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)
    ]


def _files(given: Iterable[str], *, needed: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield every file once, and whether it was named itself. Raises ParibusError where a path that
    is `needed` leads to nothing."""
    seen: set[str] = set()
    for path in given:
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
