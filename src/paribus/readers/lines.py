"""Log formats ("forms") declared in TOML files: the metrics in each kind of line.

A named group of a pattern is a metric, except `step` and facts: `planned_steps`, `seed`, and the
groups of a line with `fact = "next"`. NUMBER matches a number followed by another character,
because a number at the end of a file may be cut off. A group whose name ends with `__ms` or `__min`
is converted to seconds. A form without lines describes a table that a program writes. Built-in
forms are in `forms/`; a custom form is named by its path (`--form my_form.toml`).
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
    """Pattern of one kind of line in a log."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pattern: str  # with named groups; without `step`, a line belongs to the step logged before it
    pairs: str = ""  # with the groups `name` and `value`; matches each metric in the line
    nan_if_missing: tuple[str, ...] = ()  # names of pairs that are omitted if their value is NaN
    fact: Literal["", "next"] = ""  # `next`: the groups are facts about the runs after the line


class Form(BaseModel):
    """A format of line-based logs, or of tables that a program writes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    about: str  # a one-line description of the files
    recognise: str = ""  # must occur in the first or last 64 KiB
    not_with: str = ""  # must not occur there
    file: str = ""  # matches the file name, a colon, and the first line
    score: tuple[str, ...] = ()  # default metrics; the first one that a run has decides
    step: str = ""  # the step column of a table
    line: tuple[Line, ...] = ()
    rename: dict[str, str] = {}  # names of metrics, keyed by their names in the log
    stages: bool = False  # whether a file has several stages of a run, numbered by the fact `stage`
    program_until: str = ""  # the line after the source code, whose digest distinguishes arms

    @cached_property
    def compiled(self) -> list[tuple[Line, re.Pattern[bytes]]]:
        """Each kind of line with its compiled pattern."""
        # The next match can begin with the newline that ends this one.
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
    """Compile a regular expression for bytes, with NUMBER expanded."""
    # A newline before the line is ten times as fast to search for as `^`.
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
        pairs = _pattern(line.pairs)
        default = {name.encode(): b"nan" for name in line.nan_if_missing}
        columns = defaultdict[bytes, tuple[list[int], list[bytes]]](lambda: ([], []))
        for match in matches if line.pairs else ():
            end = text.find(b"\n", match.end()) + 1 or len(text)
            for key, value in (default | dict(pairs.findall(text, match.start(), end))).items():
                columns[key][0].append(match.start())
                columns[key][1].append(value)
        for key, (places, texts) in columns.items():
            yield line, key.decode("utf-8", "replace").strip(), places, texts


def read_lines(form: Form, source: Source) -> Iterator[Run]:
    """Yield a log's runs. Each return to the run's first step or less begins a new run."""
    program = _read_program(form, source) if form.program_until else {}
    end, parts, stated = 0, defaultdict[str, list[Any]](list), list[tuple[int, str, Value]]()
    for piece in source.pieces():
        for line, spelt, places, texts in _scan(form, b"\n" + COLOURS.sub(b"", piece)):
            name, _, unit = spelt.partition("__")
            name = form.rename.get(name, name)
            try:
                cells: list[Any] = list(map(float, texts))
            except ValueError:  # a word, or a number such as 12,345
                cells = [as_number(cell.replace(b",", b"")) for cell in texts]
            if line.fact:
                for at, number, text in zip(places, cells, texts, strict=True):
                    word = text.decode("utf-8", "replace").strip().strip("'\"")
                    stated.append((end + at, name, word if number is None else number))
                continue
            is_known = [own is not None for own in cells]
            scaled = np.array(cells, float)[is_known] * UNITS.get(unit, 1.0)
            parts[name].append((np.array(places, int)[is_known] + end, scaled))
        end += len(piece)
    stated.sort(key=itemgetter(0))
    series = {}
    for name, own in parts.items():
        places, values = map(np.concatenate, zip(*own, strict=True))
        order = np.argsort(places, kind="stable")
        series[name] = places[order], values[order]
    step_at, steps = series.pop("step", (np.array([], int), np.array([])))
    starts = _starts(steps)
    begins = [*step_at[starts].tolist(), math.inf, math.inf]
    for number in range(len(starts) or 1):
        run = Run(facts=program | {name: fact for at, name, fact in stated if at < begins[number]})
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
