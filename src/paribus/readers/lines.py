"""Forms of line logs: what a line says of a step, declared in a TOML file.

    name = "mine"
    about = "standard output of my trainer"
    recognise = '^it \\d+ loss '
    score = ["loss"]

    [[line]]
    pattern = '^it (?P<step>\\d+) loss (?P<loss>NUMBER)'

A named group is a metric of the line, but for `step` and for facts: `planned_steps`, `seed`, and
the groups of a line without metrics (`fact = "next"`). NUMBER stands for a number that something
follows, as the end of a file may cut one. A group that ends with `__ms` or `__min` becomes seconds.
The files in `forms/` are shipped; your own is named by its path (`--form my_form.toml`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.readers.port import Reader, Run, Source, Value, as_number, reader
from paribus.untrusted_io import MIB, STUDY_BYTES, parse_toml, read_text

FORMS = Path(__file__).parent / "forms"
NUMBER = r"[-+.\w]+(?=[\s|;\]})'\x22]|,(?!\d))"
FACTS = {"planned_steps", "seed"}
UNITS = {"ms": 1e-3, "min": 60.0}
COLOURS = re.compile(rb"\x1b\[[0-9;]*m")


class Line(BaseModel):
    """One kind of line.

    Attributes:
        pattern: a regular expression with named groups. A line without the group `step` is of the
            step that a line before it named.
        pairs: an expression with the groups `name` and `value`, of every metric in the line.
        fields: by metric, the expression whose first group is its value.
        nan_if_missing: metrics that a program leaves out of the line where they are NaN.
        fact: whether its groups are facts: of the runs that follow (`next`), or of the one before.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    pattern: str
    pairs: str = ""
    fields: dict[str, str] = {}
    nan_if_missing: tuple[str, ...] = ()
    fact: Literal["", "next", "last"] = ""


class Form(BaseModel):
    """A form of line log.

    Attributes:
        name: how users call it.
        about: one line about the files.
        recognise: an expression that is in the first or last 64 KiB of such a file.
        not_with: an expression that is in no such file.
        score: the metric that decides where none is named; the first that a run has.
        line: the kinds of lines.
        rename: by the name in the log, the name of a metric.
        ignore: names of pairs that are no metrics.
        stages: whether a file holds the stages of a run, which are numbered as the fact `stage`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    about: str
    recognise: str
    not_with: str = ""
    score: tuple[str, ...] = ()
    line: tuple[Line, ...]
    rename: dict[str, str] = {}
    ignore: tuple[str, ...] = ()
    stages: bool = False


def load_form(path: Path) -> Form:
    """Return the form that a file declares. Raises ParibusError."""
    table = parse_toml(read_text(path, STUDY_BYTES), str(path))
    try:
        form = Form.model_validate(table, strict=False)
        _compile(form)
    except ValidationError as error:
        raise ParibusError(f"{path}: {explain(error, Form)}") from None
    except re.error as error:
        raise ParibusError(f"{path}: {error.pattern!r} is not a pattern: {error}") from None
    return form


def make_reader(form: Form) -> Reader:
    """Return the reader of a form."""
    recognise = _pattern(form.recognise)
    excluded = _pattern(form.not_with or r"(?!)")

    def detects(source: Source) -> bool:
        return source.has(recognise) and not source.has(excluded)

    def read(source: Source) -> Iterator[Run]:
        return read_lines(form, source)

    return Reader(form.name, read, form.about, detects, form.score)


def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.replace("NUMBER", NUMBER).encode(), re.MULTILINE)


def _compile(form: Form) -> tuple[re.Pattern[bytes], list[tuple[Any, dict[str, Any]]]]:
    """Return one expression of all lines, whose groups begin with the number of the line, and the
    expressions of pairs and fields of each."""
    patterns, inside = [], []
    for place, line in enumerate(form.line):
        pattern = line.pattern + (r"[^\n]*\n?" if line.pairs or line.fields else "")
        named = re.sub(r"\(\?P<(\w+)>", rf"(?P<_{place}_\1>", pattern)
        patterns.append(f"(?P<_{place}_>{named})")
        fields = {name: _pattern(expression) for name, expression in line.fields.items()}
        inside.append((_pattern(line.pairs or r"(?!)()()"), fields))
    return _pattern("|".join(patterns)), inside


def read_lines(form: Form, source: Source) -> Iterator[Run]:
    """Yield the runs of a log: a step that goes back to the first begins another."""
    pattern, inside = _compile(form)
    run, first, last, stage = Run(), None, None, 1
    known: dict[str, Value] = {}  # facts of the runs from here on
    for piece in source.pieces():
        text = COLOURS.sub(b"", piece) if b"\x1b" in piece else piece
        for match in pattern.finditer(text):
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
            place = int(next(iter(groups)).split("_")[1])
            named = {name.split("_", 2)[2]: value for name, value in groups.items()}
            del named[""]
            line, (pairs, fields) = form.line[place], inside[place]
            if line.fact:
                facts = known if line.fact == "next" else run.facts
                for name, value in named.items():
                    spelt, number = _in_seconds(name, value)
                    facts[spelt] = _text(value) if number is None else number
                continue
            step = as_number(named.pop("step", b"").replace(b",", b""))
            if step is not None:
                if first is not None and last is not None and step <= first and step < last:
                    yield run
                    stage += 1
                    run, first = Run(), None
                first, last = step if first is None else first, step
            run.facts |= known | ({"stage": float(stage)} if form.stages else {})
            named |= {_text(name): value for name, value in pairs.findall(match[0])}
            for name, field in fields.items():
                if inner := field.search(match[0]):
                    named[name] = inner[1]
                elif name in line.nan_if_missing:
                    named[name] = b"nan"
            for name, value in named.items():
                spelt, number = _in_seconds(name, value)
                spelt = form.rename.get(spelt, spelt)
                if number is None or name in form.ignore:
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
        yield run


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _in_seconds(name: str, text: bytes) -> tuple[str, float | None]:
    """Return a metric's name without its unit, and its value in seconds; None if not a number."""
    spelt, _, unit = name.partition("__")
    number = as_number(text.strip().replace(b",", b""))
    return spelt, None if number is None else number * UNITS.get(unit, 1.0)


# Logs of modded-nanogpt: the source, a line of `=`, the environment, then lines by step:
# step:3300/3300 val_loss:3.27744 train_time:480.362s step_avg:143.75ms
# The digest of the source tells the arms of a folder apart, as a log holds the program that wrote
# it. Standard output, without the source, is read as well, and counted once with its log.
BAR = re.compile(rb"^={20,}\r?\n", re.MULTILINE)
LOGGED = re.compile(rb"step:\d+/\d+ (val|train)_")
# Bits per byte beside the loss: a log of parameter-golf, whose final result has no step.
BITS = re.compile(rb"step:\d+/\d+ val_loss:\S+ val_bpb:")
PYTORCH = re.compile(rb"PyTorch (?:version )?([0-9][\w.+]*)")
DEVICE = re.compile(rb"((?:NVIDIA|AMD) (?:GeForce |RTX )?[A-Z]+[0-9]+[\w -]*?)(?= {2}| *\|| with )")
MOST_SOURCE = 16 * MIB
DIGEST = 12  # characters of it that name an arm
TIME = r"train_time:(?:(?P<train_seconds__ms>[.\d]+)ms|(?P<train_seconds>[.\d]+)s)"
MODDED = Form(
    name="modded-nanogpt",
    about="logs with their source and lines of step:N/M val_loss:X train_time:T",
    recognise="",
    line=(
        Line(
            pattern=rf"step:(?P<step>\d{{1,12}})/(?P<planned_steps>\d{{1,12}}) (?=val_)"
            rf"(?:[^\n]*?{TIME})?",
            pairs=r"(?P<name>val_\w+):(?P<value>NUMBER)",
        ),
    ),
)


@reader(
    MODDED.name,
    says=MODDED.about,
    detects=lambda source: source.has(LOGGED) and not source.has(BITS),
    score=("val_loss",),
)
def modded_nanogpt(source: Source) -> Iterator[Run]:
    """Yield the trials of a log, in the order of the file."""
    facts = _read_beginning(source)
    for run in read_lines(MODDED, source):
        run.facts |= facts
        yield run


def _read_beginning(source: Source) -> dict[str, Value]:
    """Return facts of the source and of the environment, which stand before the first step."""
    text = b""
    for piece in source.pieces():
        text += piece
        if len(text) > MOST_SOURCE or LOGGED.search(piece):
            break
    text = BAR.sub(b"", text, count=1) if text.startswith(b"=" * 20) else text
    bar = BAR.search(text)
    if bar is None:
        return {}
    facts: dict[str, Value] = {}
    if program := text[: bar.start()].replace(b"\r\n", b"\n").strip():
        digest = hashlib.sha256(program).hexdigest()
        facts |= {"source_digest": digest, "arm": digest[:DIGEST]}
    for name, pattern in (("pytorch", PYTORCH), ("device", DEVICE)):
        if match := pattern.search(text, bar.end()):
            facts[name] = match[1].decode("ascii", "replace").strip()
    return facts
