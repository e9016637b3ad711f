"""Forms, declared in TOML files: what each kind of line in a log says about a step.

    name = "mine"
    about = "standard output of my trainer"
    recognise = '^it \\d+ loss '
    score = ["loss"]

    [[line]]
    pattern = '^it (?P<step>\\d+) loss (?P<loss>NUMBER)'

A named group is a metric, except `step` and facts: `planned_steps`, `seed`, and the groups of a
line with `fact = "next"`. NUMBER matches a number that another character follows, because a number
at the end of a file may be cut off. A group that ends with `__ms` or `__min` becomes seconds.
A form without lines is a program's table. The files in `forms/` are shipped; your own is named by
its path (`--form my_form.toml`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.readers.port import Reader, Run, Source, Value, as_number, as_value, shared
from paribus.readers.tables import read_program_table
from paribus.untrusted_io import LARGEST, MIB, STUDY_BYTES, parse_toml, read_text

FORMS = Path(__file__).parent / "forms"
NUMBER = r"[-+.\w]+(?=[\s|;\]})'\x22]|,(?!\d))"
FACTS = {"planned_steps", "seed"}
UNITS = {"ms": 1e-3, "min": 60.0}
COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
MOST_SOURCE = 16 * MIB
SPAN_BYTES = 8 * MIB  # of a large log, which one of two processes scans at a time
DIGEST = 12  # characters of it that name an arm
Series = tuple[str, np.ndarray, np.ndarray]  # a metric, the matches that have it, and its values
Stated = tuple[int, str, Value]  # the match that states a fact, its name and its value


class Line(BaseModel):
    """One kind of line in a log.

    Attributes:
        pattern: a regular expression with named groups. A line without the group `step` belongs to
            the step of an earlier line.
        pairs: an expression with the groups `name` and `value` that matches each metric in the
            line.
        nan_if_missing: names of pairs that a program omits from the line if they are NaN.
        fact: `next` if its groups are facts of the runs that begin after it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    pattern: str
    pairs: str = ""
    nan_if_missing: tuple[str, ...] = ()
    fact: Literal["", "next"] = ""


class Form(BaseModel):
    """A format of line logs or of a program's tables.

    Attributes:
        name, about: its name for users, and one line about the files.
        recognise, not_with: expressions that must, or must not, occur in the first or last 64 KiB.
        file: an expression that matches the file's name, a colon, and its first line.
        score: default metrics to judge by; the first one that a run has is used.
        step: the column of steps of a table.
        line: the kinds of lines.
        rename: names of metrics, keyed by their names in the log.
        stages: whether a file holds several stages of a run; the fact `stage` numbers them.
        program_until: an expression for the line after the source code that a log begins with. The
            digest of this code is a fact that distinguishes the arms in a folder.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    about: str
    recognise: str = ""
    not_with: str = ""
    file: str = ""
    score: tuple[str, ...] = ()
    step: str = ""
    line: tuple[Line, ...] = ()
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
        text = "|".join(kinds)
        if at_start:
            text = rf"^(?:{text})(?:(?<=\n)|[^\n]*\n?)"
        pattern = _pattern(f"(?:{text})()")  # of a single group, no tuple would be found
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
        file = re.compile(form.file)
    except re.error as error:
        why = f"form '{form.name}': recognise, not_with or file is no regular expression: {error}"
        raise ParibusError(why) from None

    def detects(source: Source) -> bool:
        is_called_so = file.match(f"{source.name}:{source.header}") and source.has(recognise)
        return bool(is_called_so) and not (form.not_with and source.has(excluded))

    read = partial(read_lines, form) if form.line else partial(read_program_table, form.step)
    return Reader(form.name, read, form.about, detects, form.score)


def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.replace("NUMBER", NUMBER).encode(), re.MULTILINE)


def _pattern_of_ends(text: str) -> re.Pattern[bytes]:
    """Compile a pattern for `Source.has`. A line is searched for by the line end before it, which
    takes a tenth of the time."""
    return _pattern(re.sub(r"(?<![\[\\])\^", r"\\n", text))


def _scan(form: Form, text: bytes) -> tuple[int, list[Series], list[Stated]]:
    """Match all lines of a piece at once. Returns the number of matches, the metrics (the steps are
    called `step`), and the facts."""
    pattern, groups = form.compiled
    matches = pattern.findall(COLOURS.sub(b"", text) if b"\x1b" in text else text)
    columns, metrics, facts = list(zip(*matches, strict=True)), list[Series](), list[Stated]()
    for number, (line, group) in groups.items() if matches else ():
        cells = list(filter(None, columns[number - 1]))
        at = np.flatnonzero(np.fromiter(map(len, columns[number - 1]), int, len(matches)))
        series = {group: (at, cells)} if group else _pairs(line, at, cells)
        for spelt, (places, texts) in series.items() if cells else ():
            name, _, unit = spelt.partition("__")
            name = form.rename.get(name, name)
            if line.fact:
                stated = map(as_value, map(_text, texts))
                facts += zip(places.tolist(), repeat(name), stated, strict=False)
                continue
            try:
                values = list(map(float, texts))
            except ValueError:
                values = [as_number(cell.replace(b",", b"")) for cell in texts]
                places = places[[value is not None for value in values]]
                values = [value for value in values if value is not None]
            metrics.append((name, places, np.array(values) * UNITS.get(unit, 1.0)))
    return len(matches), metrics, facts


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


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _scan_span(form: Form, path: str, size: int, start: int) -> tuple[list[Any], bool]:
    """Scan the pieces of a part of a file. Returns the scans, and whether its last line is cut."""
    source = Source(path)
    return [_scan(form, piece) for piece in source.pieces(start, start + size)], source.is_cut


def read_lines(form: Form, source: Source) -> Iterator[Run]:
    """Yield the runs of a log. A step that goes back to the first one begins a new run."""
    program = _read_program(form, source) if form.program_until else {}
    n, parts, facts = 0, defaultdict[str, list[Any]](list), list[Stated]()
    span, size = LARGEST if source.is_packed else SPAN_BYTES, os.path.getsize(source.path)
    task = partial(_scan_span, form, source.path, span)
    for scans, source.is_cut in shared(task, range(0, size, span), size):
        for n_matches, metrics, stated in scans:
            for name, at, values in metrics:
                parts[name].append((at + n, values))
            facts += [(n + at, *fact) for at, *fact in stated]
            n += n_matches
    facts.sort(key=itemgetter(0))
    series = {name: _join(own) for name, own in parts.items()}
    step_at, steps = series.pop("step", (np.array([], int), np.array([])))
    starts = _starts(steps)
    begins = [*step_at[starts].tolist(), n]
    runs = [Run() for _ in starts or [0]]
    for number, run in enumerate(runs):
        before = {name: value for at, name, value in facts if at < begins[number]}
        run.facts = program | before | ({"stage": number + 1.0} if form.stages and starts else {})
        limits = [begins[number] if number else 0, begins[number + 1] if starts else n]
        for name, (at, values) in series.items():
            own = slice(*np.searchsorted(at, limits))
            place = np.searchsorted(step_at, at[own], side="right") - 1
            is_point = place >= 0  # at a step
            if name in FACTS and len(place):
                run.facts[name] = float(values[own][-1])
            elif is_point.any():
                points = [steps[place[is_point]], values[own][is_point]]
                run.curves[name] = np.stack(points, axis=1)
            elif len(place):
                run.scores[name] = float(values[own][-1])
    runs[-1].facts = {name: value for _, name, value in reversed(facts)} | runs[-1].facts
    yield from (run for run in runs if run.curves or run.scores)


def _join(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Join the parts of a series, in the order of the matches."""
    at, values = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    return at[order], values[order]


def _starts(steps: np.ndarray) -> list[int]:
    """Return where runs begin: at the first step, and where the steps go back to it or below."""
    starts = [0] if len(steps) else []
    for at in (np.flatnonzero(np.diff(steps) < 0) + 1).tolist():
        if steps[at] <= steps[starts[-1]]:
            starts.append(at)
    return starts


def _read_program(form: Form, source: Source) -> dict[str, Value]:
    """Return the digest of the source code printed before the first step, as facts."""
    first_step, content = _pattern(form.line[0].pattern), b""
    for piece in source.pieces():
        content += piece
        if len(content) > MOST_SOURCE or first_step.search(piece):
            break
    parts = _pattern(form.program_until).split(content, 2)
    program, *rest = parts if parts[0] else parts[1:]
    program = program.replace(b"\r\n", b"\n").strip()
    if not rest or not program or first_step.search(program):
        return {}
    digest = hashlib.sha256(program).hexdigest()
    return {"source_digest": digest, "arm": digest[:DIGEST]}
