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
from paribus.readers import evaluations, lines, tables, trackers
from paribus.readers.facts import PATTERNS, TOKENS, Finding, find_kind
from paribus.readers.port import (
    FROM_PATH,
    Reader,
    Run,
    SkippedError,
    Source,
    cell_text,
    seed_in,
    split_seed,
)
from paribus.study.custom_code import load_own
from paribus.study.runs import RunsSection
from paribus.untrusted_io import MIB, files_below

WORD = "--form"
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
    """The distinct runs in a set of files, and the files that were not used.

    Attributes:
        runs: the runs, without copies.
        refused: (path, reason) of each file that could not be read.
        skipped: (path, reason) of each file that was skipped.
        copies: (source of the copy, source of the run that is kept).
        files: the number of files that were examined.
        paths: the files with a known format.
        notes: remarks about runs that are excluded.
    """

    runs: list[Run] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    copies: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0
    paths: list[str] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def join_curves(self) -> None:
        """Join the runs that share a folder and a name, and have one curve in each file."""
        parts: dict[object, Run] = {}
        known = trackers.tensorboard_csv.score
        for run in [run for run in self.runs if run.reader == "tensorboard-csv"]:
            key = (os.path.dirname(run.path), run.facts.get("run"), run.facts.get("arm"))
            whole = parts.setdefault(key, run)
            if whole.curves.keys().isdisjoint(run.curves):
                whole.curves |= run.curves
                whole.scores |= run.scores
                whole.decides = next((name for name in known if name in whole.scores), "")
                whole.facts["steps"] = max(whole.facts["steps"], run.facts["steps"])
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
                    if _may_be_repeated(longer, run):
                        text = f"{run.source} and {longer.source} are equal and state no seed, so"
                        text += " they count as one run. Are they two runs of one seed?"
                        self.notes.append(("equal_logs", text))
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
    """Return whether `run` is a copy: its curves are prefixes of the curves of `longer`."""
    is_timed = all("train_seconds" in each.facts for each in (longer, run))
    if longer.items != run.items or (longer.path == run.path and not is_timed):
        return False  # trials of one file are runs, whatever their values
    # Of other training times, a program ran twice with equal results.
    names = [*IDENTITY, "train_seconds"] if _length(longer) == _length(run) else IDENTITY
    stated = longer.facts.keys() & run.facts.keys() & {*names}
    return all(longer.facts[name] == run.facts[name] for name in stated) and all(
        np.array_equal(longer.curves[name][: len(run.curves[name])], run.curves[name], True)
        for name in longer.curves.keys() & run.curves.keys()
    )


def _may_be_repeated(first: Run, second: Run) -> bool:
    """Return whether two equal runs may be distinct, with no seed and logs of the same type.

    Logs of one run have other endings (standard output), or are in the folder of a checkpoint.
    """
    is_whole = _length(first) == _length(second) and "seed" not in first.facts
    homes = [CHECKPOINT.sub("", os.path.dirname(run.path)) for run in (first, second)]
    names = [os.path.basename(run.path) for run in (first, second)]
    is_same_kind = os.path.splitext(names[0])[1] == os.path.splitext(names[1])[1]
    return is_whole and is_same_kind and (homes[0] != homes[1] or names[0] != names[1])


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
    """Read the runs in files and folders.

    A run that occurs in two files counts once, unless `section` assigns the files to different
    arms. A file that cannot be read is listed as refused, and the others are read.

    Args:
        paths: files, folders and glob patterns. A label, as in `new=runs/*.txt`, sets the fact
            `arm` of the runs.
        reader: a name, `file.py:name` or a TOML file; by default each file's format is detected.
        section: the `[runs]` section, which names the columns of tables.
        scores: names of the score columns.
        needed: whether every path must match at least one file.

    Raises ParibusError if the reader is unknown, or if a needed path matches nothing.
    """
    name = reader or (section.reader if section else "")
    forced = _find_reader(name) if name else None
    files = list(_files(paths, needed=needed))
    size = sum(os.path.getsize(path) for path, *_ in files if os.path.exists(path))
    task = partial(_read_file, forced, section, scores)
    reading = Reading(files=len(files))
    parts = _share(task, files) if size > LARGE_BYTES else map(task, files)
    for (_, label, _), part in zip(files, parts, strict=True):
        for run in part.runs if label else ():
            run.facts["arm"] = label
        for name in ("runs", "refused", "skipped", "paths"):
            getattr(reading, name).extend(getattr(part, name))
    reading.join_curves()
    reading.count_once(lambda run: arm_of(run, section) if section else "")
    return reading


File = tuple[str, str, bool]  # its path, its label, and whether it was named itself
TASK: list[Callable[[File], Reading]] = []  # of this process


def _share(task: Callable[[File], Reading], files: Sequence[File]) -> Iterator[Reading]:
    """Yield results in order from two processes, forked because readers cannot be pickled."""
    with ProcessPoolExecutor(2, get_context("fork"), TASK.append, (task,)) as pool:
        yield from pool.map(_run_task, files)


def _run_task(file: File) -> Reading:
    return TASK[-1](file)


def _read_file(
    forced: Reader | None, section: RunsSection | None, scores: Sequence[str], file: File
) -> Reading:
    """Read the runs in a file, with the seed from its path. Errors are recorded, not raised."""
    path, _, is_named = file
    reading, form = Reading(), ""
    try:
        source = Source(path, section, scores)
        chosen = forced or _recognise(source, is_named)
        reading.paths.append(path)
        form = f" as {chosen.name}"
        runs = list(chosen.read(source))
        for number, run in enumerate(runs, start=1):
            run.finish()
            run.source = path if number == 1 else f"{path}#{number}"
            run.path, run.reader = path, chosen.name
            run.decides = run.decides or next((s for s in chosen.score if s in run.scores), "")
            if len(runs) == 1 and (seed := seed_in(path)) is not None:
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

    Raises ParibusError if several readers match, or if none does; SkippedError if none matches a
    file that was found in a folder.
    """
    known = shipped_readers().values()
    # Tables lie about everywhere: in a folder they are meant where their columns are named.
    may_be_table = is_named or source.scores or source.section != RunsSection()
    is_document = source.name.lower().endswith(NO_LOGS) and not is_named
    forms = [form for form in known if form.detects(source)] if not is_document else []
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
    is_by_folder = len({arm_of(run, section) for run in unnamed}) > 1
    if section.arm != "arm" or is_by_folder or None in names or len(arms) < 2 or 1 in arms.values():
        return
    for run, match in zip(unnamed, names, strict=True):
        if match:
            run.facts = {"seed": float(match["seed"])} | run.facts | {"arm": match["arm"]}


def split_label(path: str) -> tuple[str, str]:
    """Split `new=runs/new/*.txt` into `("new", "runs/new/*.txt")`.

    The label is "" if none exists, or if a file with the whole name exists.
    """
    label, equals, rest = path.partition("=")
    is_label = equals and label and rest and os.sep not in label and not os.path.lexists(path)
    return (label, rest) if is_label else ("", path)


def _files(paths: Paths, *, needed: bool) -> Iterator[File]:
    """Yield each file once, with its label and whether its path was given explicitly.

    Raises ParibusError if a `needed` path matches nothing, or if a file has two labels.
    """
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
