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
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

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
        recognise, excluded = _pattern(form.recognise), _pattern(form.not_with or r"(?!)")
    except re.error as error:
        why = f"form '{form.name}': recognise or not_with is no regular expression: {error}"
        raise ParibusError(why) from None

    def detects(source: Source) -> bool:
        return source.has(recognise) and not source.has(excluded)

    def read(source: Source) -> Iterator[Run]:
        return read_lines(form, source)

    return Reader(form.name, read, form.about, detects, form.score)


@cache
def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.replace("NUMBER", NUMBER).encode(), re.MULTILINE)


def _compile(form: Form) -> tuple[re.Pattern[bytes], dict[int, tuple[Line, dict[str, int]]]]:
    """Compile all line patterns into one expression. Returns it with a dict: the number of the
    group around each kind of line -> the line, and its named groups' numbers."""
    patterns = []
    for place, line in enumerate(form.line):
        pattern = line.pattern + (r"[^\n]*\n?" if line.pairs else "")
        named = re.sub(r"\(\?P<(\w+)>", rf"(?P<_{place}_\1>", pattern)
        patterns.append(f"(?P<_{place}_>{named})")
    whole = _pattern("|".join(patterns))
    kinds = {whole.groupindex[f"_{place}_"]: (line, {}) for place, line in enumerate(form.line)}
    for name, number in whole.groupindex.items():
        _, place, own = name.split("_", 2)
        if own:
            kinds[whole.groupindex[f"_{place}_"]][1][own] = number
    return whole, kinds


def read_lines(form: Form, source: Source) -> Iterator[Run]:
    """Yield the runs of a log. A step that goes back to the first one begins a new run."""
    pattern, kinds = _compile(form)
    run, first, last, stage = Run(), None, None, 1
    known = _read_program(form, source)  # facts of the runs from here on
    for piece in source.pieces():
        text = COLOURS.sub(b"", piece) if b"\x1b" in piece else piece
        for match in pattern.finditer(text):
            line, groups = kinds[match.lastindex or 0]  # the outer group is closed last
            if line.fact:
                for name, n in groups.items():
                    spelt, number = _read_number(name, match[n] or b"")
                    facts = known if line.fact == "next" else run.facts
                    if match[n] is not None:
                        facts[spelt] = _text(match[n]) if number is None else number
                continue
            if "step" in groups and match[groups["step"]] is not None:
                _, step = _read_number("", match[groups["step"]])
                if step is None:
                    continue
                if first is not None and last is not None and step <= first and step < last:
                    yield run
                    stage += 1
                    run, first = Run(), None
                if first is None:
                    first = step
                    run.facts |= known | ({"stage": float(stage)} if form.stages else {})
                last = step
            named = [(name, match[n]) for name, n in groups.items() if name != "step"]
            if line.pairs:
                pairs = {_text(name): own for name, own in _pattern(line.pairs).findall(match[0])}
                named += (dict.fromkeys(line.nan_if_missing, b"nan") | pairs).items()
            for name, value in named:
                spelt, number = _read_number(name, value or b"")
                spelt = form.rename.get(spelt, spelt)
                if number is None:
                    continue
                if spelt in FACTS:
                    run.facts[spelt] = number
                elif last is None:
                    run.scores[spelt] = number
                else:
                    run.log(spelt, last, number)
    if source.is_cut:
        run.facts["cut"] = "the last line has no end"
    if run.curves or run.scores:
        run.facts = known | run.facts
        yield run


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _read_number(name: str, text: bytes) -> tuple[str, float | None]:
    """Return a metric's name without its unit, and its value (None if not a number). Times are
    converted to seconds."""
    number = as_number(text.replace(b",", b""))
    if number is None or "__" not in name:
        return name, number
    spelt, _, unit = name.partition("__")
    return spelt, number * UNITS.get(unit, 1.0)


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
