"""Forms of line logs, declared in TOML files: what each kind of line says about a step.

    name = "mine"
    about = "standard output of my trainer"
    recognise = '^it \\d+ loss '
    score = ["loss"]

    [[line]]
    pattern = '^it (?P<step>\\d+) loss (?P<loss>NUMBER)'

A named group is a metric, except `step` and facts: `planned_steps`, `seed`, and the groups of a
line with `fact = "next"`. NUMBER matches a number that another character follows, because a number
at the end of a file may be cut off. A group that ends with `__ms` or `__min` becomes seconds.
The files in `forms/` are shipped; your own is named by its path (`--form my_form.toml`).
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.readers.port import Reader, Run, Source, Value, as_number
from paribus.untrusted_io import MIB, STUDY_BYTES, parse_toml, read_text

FORMS = Path(__file__).parent / "forms"
NUMBER = r"[-+.\w]+(?=[\s|;\]})'\x22]|,(?!\d))"
FACTS = {"planned_steps", "seed"}
UNITS = {"ms": 1e-3, "min": 60.0}
COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
MOST_SOURCE = 16 * MIB
SPAN_BYTES = 32 * MIB  # of a large log, which one of two processes scans at a time
DIGEST = 12  # characters of it that name an arm


class Line(BaseModel):
    """One kind of line in a log.

    Attributes:
        pattern: a regular expression with named groups. A line without the group `step` belongs to
            the step of an earlier line.
        pairs: an expression with the groups `name` and `value` that matches each metric in the
            line.
        nan_if_missing: names of pairs that a program omits from the line if they are NaN.
        fact: whether its groups are facts of the following runs (`next`) or the previous run
            (`last`).
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    pattern: str
    pairs: str = ""
    nan_if_missing: tuple[str, ...] = ()
    fact: Literal["", "next", "last"] = ""


class Form(BaseModel):
    """A format of line logs.

    Attributes:
        name, about: its name for users, and one line about the files.
        recognise, not_with: expressions that must, or must not, occur in the first or last 64 KiB.
        score: default metrics to judge by; the first one that a run has is used.
        line: the kinds of lines.
        rename: names of metrics, keyed by their names in the log.
        stages: whether a file holds several stages of a run; the fact `stage` numbers them.
        program_until: an expression for the line after the source code that a log begins with. The
            digest of this code is a fact that distinguishes the arms in a folder.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    about: str
    recognise: str
    not_with: str = ""
    score: tuple[str, ...] = ()
    line: tuple[Line, ...]
    rename: dict[str, str] = {}
    stages: bool = False
    program_until: str = ""

    @cached_property
    def compiled(self) -> tuple[re.Pattern[bytes], dict[int, tuple[Line, str]]]:
        """One expression of all kinds of lines, and for each of its groups the line and the name,
        which is empty for the text of a line with pairs.

        If each kind begins a line, a match goes on to the line's end: the search for the next one
        tries every byte that is not matched.
        """
        at_start = all(line.pattern.startswith("^") for line in self.line)
        kinds = []
        for place, line in enumerate(self.line):
            pattern = line.pattern.removeprefix("^") if at_start else line.pattern
            named = re.sub(r"\(\?P<(\w+)>", rf"(?P<_{place}_\1>", pattern)
            kinds.append(rf"(?P<_{place}_>{named}[^\n]*\n?)" if line.pairs else f"(?:{named})")
        whole = "|".join(kinds)
        if at_start:
            whole = rf"^(?:{whole})(?:(?<=\n)|[^\n]*\n?)"
        pattern = _pattern(f"(?:{whole})()")  # of a single group, no tuple would be found
        names = {number: name.split("_", 2)[1:] for name, number in pattern.groupindex.items()}
        return pattern, {n: (self.line[int(place)], own) for n, (place, own) in names.items()}


def load_form(path: Path) -> Form:
    """Load a form from a TOML file. Raises ParibusError."""
    table = parse_toml(read_text(path, STUDY_BYTES), str(path))
    try:
        return Form.model_validate(table, strict=False)
    except ValidationError as error:
        raise ParibusError(f"{path}: {explain(error, Form)}") from None


def make_reader(form: Form) -> Reader:
    """Return the reader for a form. Raises ParibusError."""
    try:
        recognise, excluded = map(_pattern_of_ends, (form.recognise, form.not_with))
    except re.error as error:
        why = f"form '{form.name}': recognise or not_with is no regular expression: {error}"
        raise ParibusError(why) from None

    def detects(source: Source) -> bool:
        return source.has(recognise) and not (form.not_with and source.has(excluded))

    return Reader(form.name, partial(read_lines, form), form.about, detects, form.score)


def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.replace("NUMBER", NUMBER).encode(), re.MULTILINE)


def _pattern_of_ends(text: str) -> re.Pattern[bytes]:
    """Compile a pattern for `Source.has`. A line is searched for by the line end before it, which
    takes a tenth of the time."""
    return _pattern(re.sub(r"(?<![\[\\])\^", r"\\n", text))


Series = tuple[np.ndarray, np.ndarray]  # the matches that have it, in order, and its values


class Scan(NamedTuple):
    """What a piece of a log says, by the numbers of its matches."""

    n: int
    metrics: dict[str, Series]
    """by name; the steps are called `step`"""
    facts: list[tuple[int, Line, str, Value]]


def _scan(form: Form, text: bytes) -> Scan:
    """Match all lines of a piece at once, and return the values by column."""
    pattern, groups = form.compiled
    matches = pattern.findall(COLOURS.sub(b"", text) if b"\x1b" in text else text)
    metrics, facts = defaultdict[str, list[Series]](list), []
    columns = list(zip(*matches, strict=True))
    for number, (line, name) in groups.items() if matches else ():
        column = columns[number - 1]
        at = np.flatnonzero(np.fromiter(map(len, column), int, len(column)))
        cells = list(filter(None, column))
        if line.fact:
            for place, cell in zip(at.tolist(), cells, strict=True):
                spelt, scale = _unit(name)
                value = as_number(cell.replace(b",", b""))
                facts.append((place, line, spelt, _text(cell) if value is None else value * scale))
            continue
        named = {name: (at, cells)} if name else _pairs(line, at, cells)
        for own, (places, texts) in named.items():
            spelt, scale = _unit(own)
            is_number, values = _numbers(texts)
            series = (places[is_number], values * scale)
            metrics[form.rename.get(spelt, spelt)].append(series)
    facts.sort(key=lambda fact: fact[0])
    return Scan(len(matches), {name: _joined(own) for name, own in metrics.items()}, facts)


def _pairs(
    line: Line, at: np.ndarray, texts: Sequence[bytes]
) -> dict[str, tuple[np.ndarray, list[bytes]]]:
    """Return the metrics in lines of pairs: the matches that have it, and its values as text."""
    pattern = _pattern(line.pairs)
    default = {name.encode(): b"nan" for name in line.nan_if_missing}
    columns: dict[bytes, tuple[list[int], list[bytes]]] = {}
    for place, text in zip(at.tolist(), texts, strict=True):
        for name, value in (default | dict(pattern.findall(text))).items():
            places, values = columns.setdefault(name, ([], []))
            places.append(place)
            values.append(value)
    return {_text(name): (np.array(own[0]), own[1]) for name, own in columns.items()}


def _joined(series: Sequence[Series]) -> Series:
    """Join series of one metric, in the order of the matches."""
    if len(series) == 1:
        return series[0]
    at, values = map(np.concatenate, zip(*series, strict=True))
    order = np.argsort(at, kind="stable")
    return at[order], values[order]


def _unit(name: str) -> tuple[str, float]:
    """Split a metric's name into the name without its unit, and the factor to seconds."""
    spelt, _, unit = name.rpartition("__") if "__" in name else (name, "", "")
    return spelt, UNITS.get(unit, 1.0)


def _numbers(cells: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return which cells are numbers, and their values."""
    try:
        return np.ones(len(cells), bool), np.array(list(map(float, cells)))
    except ValueError:
        values = [as_number(cell.replace(b",", b"")) for cell in cells]
        numbers = [value for value in values if value is not None]
        return np.array([value is not None for value in values]), np.array(numbers)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _scan_span(form: Form, path: str, start: int) -> tuple[list[Scan], bool]:
    source = Source(path)
    scans = [_scan(form, piece) for piece in source.pieces(start, start + SPAN_BYTES)]
    return scans, source.is_cut


def _scan_all(form: Form, source: Source) -> Iterator[Scan]:
    """Yield the scans of a log's pieces; two processes scan a large one."""
    size = os.path.getsize(source.path)
    if source.unpack or size < 2 * SPAN_BYTES or multiprocessing.parent_process():
        yield from (_scan(form, piece) for piece in source.pieces())
        return
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        spans = partial(_scan_span, form, source.path)
        for scans, source.is_cut in pool.map(spans, range(0, size, SPAN_BYTES)):
            yield from scans


def read_lines(form: Form, source: Source) -> Iterator[Run]:
    """Yield the runs of a log. A step that goes back to the first one begins a new run."""
    n, pieces, facts = 0, defaultdict[str, list[Series]](list), []
    for scan in _scan_all(form, source):
        for name, (at, values) in scan.metrics.items():
            pieces[name].append((at + n, values))
        facts += [(n + at, *fact) for at, *fact in scan.facts]
        n += scan.n
    none = (np.array([], int), np.array([]))
    metrics = {
        name: tuple(map(np.concatenate, zip(*own, strict=True))) for name, own in pieces.items()
    }
    step_at, steps = metrics.pop("step", none)
    starts = _starts(steps)
    runs = [Run(facts=_read_program(form, source)) for _ in starts or [0]]
    begins = step_at[starts]
    for at, line, name, value in facts:
        if line.fact == "last":
            runs[max(np.searchsorted(begins, at) - 1, 0)].facts[name] = value
        else:
            following = runs[np.searchsorted(begins, at) :]
            for run in following:
                run.facts[name] = value
            if not following:
                runs[-1].facts.setdefault(name, value)
    for number, run in enumerate(runs, start=1):
        run.facts |= {"stage": float(number)} if form.stages and starts else {}
    for name, (at, values) in metrics.items():
        place = np.searchsorted(step_at, at, side="right") - 1
        bounds = [0, *np.searchsorted(at, begins[1:]), len(at)]
        for run, first, last in zip(runs, bounds, bounds[1:], strict=False):
            if first == last:
                continue
            early = first + np.searchsorted(place[first:last], 0)  # before any step
            if name in FACTS:
                run.facts[name] = float(values[last - 1])
            elif early < last:
                points = slice(early, last)
                run.curves[name] = np.stack([steps[place[points]], values[points]], axis=1)
            else:
                run.scores[name] = float(values[last - 1])
    if source.is_cut:
        runs[-1].facts["cut"] = "the last line has no end"
    yield from (run for run in runs if run.curves or run.scores)


def _starts(steps: np.ndarray) -> list[int]:
    """Return where runs begin: at the first step, and where the steps go back to it or below."""
    starts = [0] if len(steps) else []
    for at in (np.flatnonzero(np.diff(steps) < 0) + 1).tolist():
        if steps[at] <= steps[starts[-1]]:
            starts.append(at)
    return starts


def _read_program(form: Form, source: Source) -> dict[str, Value]:
    """Return the digest of the source code printed before the first step, as facts."""
    if not form.program_until:
        return {}
    first_step, end, content = _pattern(form.line[0].pattern), _pattern(form.program_until), b""
    for piece in source.pieces():
        content += piece
        if len(content) > MOST_SOURCE or first_step.search(piece):
            break
    if leading := end.match(content):
        content = content[leading.end() :]
    program, *rest = end.split(content, 1)
    program = program.replace(b"\r\n", b"\n").strip()
    if not rest or not program or first_step.search(program):
        return {}
    digest = hashlib.sha256(program).hexdigest()
    return {"source_digest": digest, "arm": digest[:DIGEST]}
