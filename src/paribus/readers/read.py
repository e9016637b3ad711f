"""Discovery of files, choice of a reader for each, and collection of the runs."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path, PurePath

import numpy as np

from paribus.errors import ParibusError, nearest, one_line
from paribus.readers import evaluations, lines, port, tables, trackers
from paribus.readers.facts import PATTERNS, TOKENS, Finding, find_kind
from paribus.readers.port import FROM_PATH, Reader, Run, SkippedError, Source, cell_text, split_seed
from paribus.study.custom_code import load_own
from paribus.study.runs import RunsSection
from paribus.untrusted_io import MIB, files_below

WORD = "--form"
CHARTS = ("tensorboard-csv", "wandb-chart")  # readers of files with one curve of each run
LARGE_BYTES = 16 * MIB  # of files, which two processes share
NO_LOGS = (".md", ".rst", ".html", ".py", ".ipynb")  # which quote logs; read where they are named
OF_A_RUN, DATE, CHECKPOINT, SEED_OF_FILE = map(
    PATTERNS.__getitem__, ("of_a_run", "date", "checkpoint", "seed_of_file")
)
LEAST_OF_A_CURVE = 3  # points; fewer may be equal by chance
LONGEST_QUOTE = 80  # characters of an error, which may quote the file
IDENTITY = ("arm", "seed", "source_digest", "commit")  # facts in which no two copies differ

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass
class Reading:
    """The distinct runs in a set of files, and the files that were not used."""

    runs: list[Run] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)  # paths and reasons
    skipped: list[tuple[str, str]] = field(default_factory=list)  # paths and reasons
    copies: list[tuple[str, str]] = field(default_factory=list)  # sources of the copy and the run
    files: int = 0  # the number of files that were examined
    paths: list[str] = field(default_factory=list)  # the files with a known format
    notes: list[Finding] = field(default_factory=list)  # on runs that are excluded

    def join_curves(self) -> None:
        """Join the runs of charts that share a folder and a name, and have different curves."""
        parts: dict[object, Run] = {}
        for run in [run for run in self.runs if run.reader in CHARTS]:
            key = (os.path.dirname(run.path), run.facts.get("run"), run.facts.get("arm"))
            whole = parts.setdefault(key, run)
            if whole.curves.keys().isdisjoint(run.curves):
                whole.curves |= run.curves
                whole.finish(trackers.DECIDES)
                self.runs.remove(run)

    def count_once(self, arm: Callable[[Run], str]) -> None:
        """Move each run that is a copy of a longer run of the same arm from `runs` to `copies`.

        A copy, such as standard output saved next to the log or an earlier checkpoint, has the same
        arm, seed, source and values up to its last step. The longer run keeps the facts of both.
        """
        known: dict[object, Run] = {}  # by what copies have in common
        for run in sorted(self.runs, key=_length, reverse=True):
            for key in _beginnings(run):
                longer = known.setdefault((arm(run), *key), run)
                if longer is not run and _is_copy(longer, run):
                    longer.facts = run.facts | longer.facts
                    self.copies.append((run.source, longer.source))
                    self.runs.remove(run)
                    break


def _length(run: Run) -> int:
    return sum(map(len, run.curves.values()))


def _beginnings(run: Run) -> Iterator[tuple[object, ...]]:
    """Yield keys that copies of a run share: first points of curves, and the checkpoint folder."""
    for name, curve in run.curves.items():
        first = curve[:LEAST_OF_A_CURVE]
        is_spent = TOKENS.fullmatch(name) or find_kind(name) == "time"  # equal in many runs
        if not is_spent and len(first) == LEAST_OF_A_CURVE and np.ptp(first[:, 1]) != 0:
            yield name, first.tobytes()
    folder, name = os.path.split(run.path)
    if name == "trainer_state.json":
        yield CHECKPOINT.sub("", folder), name


def _is_copy(longer: Run, run: Run) -> bool:
    """Return whether `run` is a copy: its curves are the beginnings of those of `longer`."""
    is_timed = all("train_seconds" in each.facts for each in (longer, run))
    if longer.items != run.items or (longer.path == run.path and not is_timed):
        return False  # trials of one file are runs, whatever their values
    # Of other training times, a program ran twice with equal results.
    names = [*IDENTITY, "train_seconds"] if _length(longer) == _length(run) else IDENTITY
    stated = longer.facts.keys() & run.facts.keys() & {*names}
    shared = longer.curves.keys() & run.curves.keys()
    curves = [(longer.curves[name], run.curves[name]) for name in shared]
    return all(longer.facts[name] == run.facts[name] for name in stated) and all(
        np.array_equal(first[: len(own)], own, equal_nan=True) for first, own in curves
    )


@cache
def shipped_readers() -> dict[str, Reader]:
    """Return the built-in readers, keyed by name, including those declared in `forms/`."""
    modules = (evaluations, tables, trackers)
    readers = [value for module in modules for value in vars(module).values()]
    readers += map(lines.load_form, sorted(lines.FORMS.glob("*.toml")))
    return {reader.name: reader for reader in readers if isinstance(reader, Reader)}


def read(
    paths: Paths,
    reader: str | None = None,
    *,
    section: RunsSection | None = None,
    scores: Sequence[str] = (),
    needed: bool = True,
) -> Reading:
    """Read the runs in files and folders; a file that cannot be read is listed as refused.

    A run in two files counts once, unless `section` assigns the files to different arms.

    Args:
        paths: files, folders and glob patterns. A label, as in `new=runs/*.txt`, sets the fact
            `arm` of the runs.
        reader: a name, `file.py:name` or a TOML file; by default each file's format is detected.
        section: the `[runs]` section, which names the columns of tables.
        scores: names of the score columns.
        needed: whether every path must match at least one file.

    Raises ParibusError if the reader is unknown, or if a needed path matches nothing.
    """
    _find_reader.cache_clear()  # a custom one may have changed
    if name := reader or (section.reader if section else ""):
        _find_reader(name)
    files = list(_files(paths, needed=needed))
    size = sum(os.path.getsize(path) for path, *_ in files if os.path.exists(path))
    task, reading = partial(_read_file, name, section, scores), Reading(files=len(files))
    parts = map(task, files)
    if size > LARGE_BYTES:
        with ProcessPoolExecutor(2, get_context("fork")) as pool:
            parts = pool.map(task, files)
    for (_, label, _), part in zip(files, parts, strict=True):
        for run in part.runs if label else ():
            run.facts["arm"] = label
        for name in ("runs", "refused", "skipped", "paths"):
            getattr(reading, name).extend(getattr(part, name))
    reading.join_curves()
    reading.count_once(lambda run: arm_of(run, section) if section else "")
    return reading


File = tuple[str, str, bool]  # its path, its label, and whether it was named itself


def _read_file(
    name: str, section: RunsSection | None, scores: Sequence[str], file: File
) -> Reading:
    """Read the runs in a file, with the seed from its path. Errors are recorded, not raised."""
    path, _, is_named = file
    reading, form = Reading(), ""
    try:
        source = Source(path, section, scores)
        chosen = _find_reader(name) if name else _recognise(source, is_named)
        reading.paths.append(path)
        form = f" as {chosen.name}"
        runs = list(chosen.read(source))
        for number, run in enumerate(runs, start=1):
            run.finish(chosen.score)
            run.source = path if number == 1 else f"{path}#{number}"
            run.path, run.reader = path, chosen.name
            if len(runs) == 1 and (seed := port.seed_in(path)) is not None:
                run.facts.setdefault("seed", seed)
        if not runs:
            why = f"reader '{chosen.name}' found no run in it"
            raise ParibusError(f"{path}: {why}") if is_named else SkippedError(why)
        if source.is_cut:
            runs[-1].facts["cut"] = "yes"
        reading.runs = runs
    except SkippedError as error:
        reading.skipped.append((path, str(error)))
    except ParibusError as error:
        reading.refused.append((path, str(error)))
    except Exception as error:  # the file may be damaged, and the reader may be custom code
        why = f"{type(error).__name__}: {one_line(str(error), LONGEST_QUOTE)}"
        reading.refused.append((path, f"{path} cannot be read{form}: {why}"))
    return reading


@cache
def _find_reader(name: str) -> Reader:
    if name.endswith(".toml"):
        return lines.load_form(Path(name))
    if ":" in name:
        return load_own(name, WORD, "reader", Reader, Path.cwd())
    if name not in (shipped := shipped_readers()):
        why = f"{WORD}: unknown format '{name}'; {nearest(name, shipped)}"
        raise ParibusError(f"{why}; for a custom format, pass a TOML file or 'file.py:name'")
    return shipped[name]


def _recognise(source: Source, is_named: bool) -> Reader:
    """Return the reader for a file.

    Raises ParibusError unless one reader matches, or SkippedError if none matches a file that was
    found in a folder.
    """
    known = shipped_readers().values()
    # Tables lie about everywhere: in a folder they are meant where their columns are named.
    may_be_table = is_named or source.scores or source.section != RunsSection()
    is_document = source.name.lower().endswith(NO_LOGS) and not is_named
    forms = [form for form in known if not is_document and form.detects(source)]
    forms = [form for form in forms if form is not tables.table] or (forms if may_be_table else [])
    if len(forms) == 1:
        return forms[0]
    if not (forms or is_named):
        raise SkippedError("its format was not recognized")
    why = "it matches several formats" if forms else "its format is unknown, or it is an archive"
    names = ", ".join(form.name for form in forms or known)
    ways = f"unpack it, or pass a format with {WORD} ({names}), or a custom one as 'file.py:name'"
    raise ParibusError(f"cannot read {source.path}, because {why}; {ways}")


def arm_of(run: Run, section: RunsSection) -> str:
    """Return a run's arm label, or "" if it has none."""
    if section.arm not in FROM_PATH:
        stated = run.facts.get(section.arm, run.facts.get("arm", ""))
        if stated != "" or section.arm != "arm" or not run.path:
            return cell_text(stated)
    path = PurePath(os.path.abspath(run.path))
    if section.arm == "name":
        return split_seed(path.stem)[0]
    names = (DATE.sub("", folder.name) for folder in path.parents)
    own = next((name for name in names if name and not OF_A_RUN.fullmatch(name)), path.parent.name)
    return split_seed(own)[0]


def name_arms(runs: Iterable[Run], section: RunsSection) -> None:
    """Set the facts `arm` and `seed` from file names such as `base-seed1.log` in one folder.

    Nothing is set if the folders distinguish arms, or unless at least two arms have several runs.
    """
    unnamed = [run for run in runs if run.path and not {"arm", section.arm} & run.facts.keys()]
    names = [SEED_OF_FILE.fullmatch(PurePath(run.path).stem) for run in unnamed]
    arms = Counter(match["arm"] for match in names if match)
    is_flat = section.arm == "arm" and len({arm_of(run, section) for run in unnamed}) == 1
    for run, match in zip(unnamed, names, strict=True):
        if match and is_flat and None not in names and len(arms) > 1 and 1 not in arms.values():
            run.facts = {"seed": float(match["seed"])} | run.facts | {"arm": match["arm"]}


def split_label(path: str) -> tuple[str, str]:
    """Split `new=runs/*.txt` into `("new", "runs/*.txt")`, unless a file has the whole name."""
    label, equals, rest = path.partition("=")
    is_label = equals and label and rest and os.sep not in label and not os.path.lexists(path)
    return (label, rest) if is_label else ("", path)


def _files(paths: Paths, *, needed: bool) -> Iterator[File]:
    """Yield each file once, with its label and whether its path was given explicitly."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    labelled = [split_label(os.fspath(path)) for path in listed]
    seen: dict[str, str] = {}
    for label, path in labelled:
        if not label and any(name for name, _ in labelled):
            raise ParibusError(f"'{path}' has no label, but other paths do; write label={path}")
        matches = [path] if os.path.lexists(path) else sorted(glob.glob(path, recursive=True))
        if needed and not matches:
            why = f"'{path}' does not exist, or matches no file; correct the path"
            raise ParibusError(why, code="missing")
        folders = [match for match in matches if os.path.isdir(match)]
        files = [match for match in matches if match not in folders]
        named = set(files)
        for folder in folders:
            inside = [os.fspath(file) for file in files_below(Path(folder))]
            are_tables = all(f.lower().endswith((*tables.SUFFIXES, *NO_LOGS)) for f in inside)
            named.update(f for f in inside if are_tables and f.lower().endswith(tables.SUFFIXES))
            files += inside
        for file in files:
            real = os.path.realpath(file)
            if (earlier := seen.get(real, label)) != label:
                why = f"{file} is assigned to arms '{earlier}' and '{label}'; remove one of them"
                raise ParibusError(why, code="conflict")
            if real not in seen:
                seen[real] = label
                yield file, label, file in named
