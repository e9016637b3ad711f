"""Log formats ("forms") declared in TOML files: the metrics in each kind of line.

    name = "mine"
    about = "standard output of my trainer"
    recognise = '^it \\d+ loss '
    score = ["loss"]

    [[line]]
    pattern = '^it (?P<step>\\d+) loss (?P<loss>NUMBER)'

A named group is a metric, except `step` and facts: `planned_steps`, `seed`, and the groups of a
line with `fact = "next"`. NUMBER matches a number followed by another character, because a number
at the end of a file may be cut off. A group whose name ends with `__ms` or `__min` is converted to
seconds. A form without lines describes a table that a program writes. Built-in forms are in
`forms/`; a custom form is named by its path (`--form my_form.toml`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.readers.port import Reader, Run, Source, Value, as_number
from paribus.readers.tables import read_program_table
from paribus.untrusted_io import MIB, STUDY_BYTES, parse_toml, read_text

FORMS = Path(__file__).parent / "forms"
NUMBER = r"[-+.\w]+(?=[\s|;\]})'\x22]|,(?!\d))"
FACTS = {"planned_steps", "seed", "global_batch_size"}
UNITS = {"ms": 1e-3, "min": 60.0}
COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
MOST_SOURCE = 16 * MIB
DIGEST = 12  # characters of it that name an arm


class Line(BaseModel):
    """Pattern of one kind of line in a log.

    Attributes:
        pattern: a regular expression with named groups. A line without the group `step` belongs to
            the last step logged before it.
        pairs: a regular expression with the groups `name` and `value` that matches each metric in
            the line.
        nan_if_missing: names of pairs that the program omits if their value is NaN.
        fact: `next` if the groups are facts about the runs that begin after the line.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    pattern: str
    pairs: str = ""
    nan_if_missing: tuple[str, ...] = ()
    fact: Literal["", "next"] = ""


class Form(BaseModel):
    """A format of line-based logs, or of tables that a program writes.

    Attributes:
        name: the name that users type.
        about: a one-line description of the files.
        recognise: a regular expression that must occur in the first or last 64 KiB.
        not_with: a regular expression that must not occur there.
        file: a regular expression that matches the file name, a colon, and the first line.
        score: default metrics to judge by. The first one that a run has is used.
        step: the step column of a table.
        line: the kinds of lines.
        rename: names of metrics, keyed by their names in the log.
        stages: whether a file contains several stages of a run, numbered by the fact `stage`.
        program_until: a regular expression for the line that follows the source code at the start
            of a log. The digest of this code is a fact that distinguishes the arms in a folder.
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
    def compiled(self) -> list[tuple[Line, re.Pattern[bytes]]]:
        """Each kind of line with its compiled pattern.

        A final newline in a pattern becomes a lookahead, so that the next match can begin with it.
        """
        patterns = [re.sub(r"\\n$", r"(?=\\n)", line.pattern) for line in self.line]
        return list(zip(self.line, map(_pattern, patterns), strict=True))


def load_form(path: Path) -> Reader:
    """Return the reader for the form in a TOML file. Raises ParibusError if the form is invalid."""
    table = parse_toml(read_text(path, STUDY_BYTES), str(path))
    try:
        form = Form.model_validate(table, strict=False)
        recognise, excluded = map(_pattern, (form.recognise, form.not_with))
        file = re.compile(form.file)
    except ValidationError as error:
        raise ParibusError(f"{path}: {explain(error, Form)}") from None
    except re.error as error:
        why = f"{path}: recognise, not_with or file is not a valid regular expression ({error})"
        raise ParibusError(why) from None

    def detects(source: Source) -> bool:
        is_called_so = file.match(f"{source.name}:{source.header}") and source.has(recognise)
        return bool(is_called_so) and not (form.not_with and source.has(excluded))

    read = partial(read_lines, form) if form.line else partial(read_program_table, form.step)
    return Reader(form.name, read, form.about, detects, form.score)


def _pattern(text: str) -> re.Pattern[bytes]:
    """Compile a regular expression for bytes, with NUMBER expanded.

    `^` becomes the newline before the line, which is ten times as fast to search for.
    """
    text = re.sub(r"(?<![\[\\])\^", r"\\n", text)
    return re.compile(text.replace("NUMBER", NUMBER).encode())


def _scan(form: Form, text: bytes) -> Iterator[tuple[Line, str, list[int], list[bytes]]]:
    """Yield the metrics and facts in a chunk of a log, including the steps as `step`.

    Each comes as its kind of line, its name, and the byte offsets and texts of its values.
    """
    for line, pattern in form.compiled:
        matches = list(pattern.finditer(text))
        for name in pattern.groupindex:
            own = [match for match in matches if match[name]]
            yield line, name, [match.start() for match in own], [match[name] for match in own]
        if line.pairs:
            yield from _scan_pairs(line, text, matches)


def _scan_pairs(
    line: Line, text: bytes, matches: list[re.Match[bytes]]
) -> Iterator[tuple[Line, str, list[int], list[bytes]]]:
    """Yield the metrics in lines of name-value pairs, in the format of `_scan`."""
    pattern = _pattern(line.pairs)
    default = {name.encode(): b"nan" for name in line.nan_if_missing}
    columns = defaultdict[bytes, tuple[list[int], list[bytes]]](lambda: ([], []))
    for match in matches:
        end = text.find(b"\n", match.end()) + 1 or len(text)
        for name, value in (default | dict(pattern.findall(text, match.start(), end))).items():
            columns[name][0].append(match.start())
            columns[name][1].append(value)
    for name, (places, texts) in columns.items():
        yield line, _text(name), places, texts


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def read_lines(form: Form, source: Source) -> Iterator[Run]:
    """Yield a log's runs. Each return to the run's first step or less begins a new run."""
    program = _read_program(form, source) if form.program_until else {}
    end, parts, stated = 0, defaultdict[str, list[Any]](list), list[tuple[int, str, Value]]()
    for piece in source.pieces():
        for line, spelt, places, texts in _scan(form, b"\n" + COLOURS.sub(b"", piece)):
            name, _, unit = spelt.partition("__")
            name = form.rename.get(name, name)
            if line.fact:
                for at, cell in zip(places, texts, strict=True):
                    number = as_number(cell.replace(b",", b""))
                    stated.append(
                        (end + at, name, _text(cell).strip("'\"") if number is None else number)
                    )
                continue
            try:
                numbers = list(map(float, texts))
            except ValueError:  # a word, or a number such as 12,345
                cells = [as_number(cell.replace(b",", b"")) for cell in texts]
                places = [at for at, own in zip(places, cells, strict=True) if own is not None]
                numbers = [own for own in cells if own is not None]
            scaled = np.array(numbers) * UNITS.get(unit, 1.0)
            parts[name].append((np.array(places, int) + end, scaled))
        end += len(piece)
    stated.sort(key=itemgetter(0))
    series = {name: _join(own) for name, own in parts.items()}
    step_at, steps = series.pop("step", (np.array([], int), np.array([])))
    starts = _starts(steps)
    begins = [*step_at[starts].tolist(), math.inf, math.inf]
    for number in range(len(starts) or 1):
        before = {name: own for at, name, own in stated if at < begins[number]}
        run = Run(facts=program | before)
        if form.stages:
            run.facts["stage"] = number + 1.0
        limits = [begins[number] if number else 0, begins[number + 1]]
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
        if run.curves or run.scores:
            yield run


def _join(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the parts of a series, each (offsets, values), and sort by offset."""
    at, values = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    return at[order], values[order]


def _starts(steps: np.ndarray) -> list[int]:
    """Return the indices where runs begin: 0, and each return to a run's first step or less."""
    starts = [0] if len(steps) else []
    for at in (np.flatnonzero(np.diff(steps) < 0) + 1).tolist():
        if steps[at] <= steps[starts[-1]]:
            starts.append(at)
    return starts


def _read_program(form: Form, source: Source) -> dict[str, Value]:
    """Return the digest of the source code printed before the first step as a fact, if any."""
    first_step, content = _pattern(form.line[0].pattern), b"\n"
    for piece in source.pieces():
        content += piece
        if len(content) > MOST_SOURCE or first_step.search(content):
            break
    parts = _pattern(form.program_until).split(content, 2)
    program, *rest = parts if parts[0].strip() else parts[1:]
    program = program.replace(b"\r\n", b"\n").strip()
    if not rest or not program or first_step.search(program):
        return {}
    digest = hashlib.sha256(program).hexdigest()
    return {"source_digest": digest, "arm": digest[:DIGEST]}
