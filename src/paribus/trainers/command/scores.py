"""The scores of a trial: read from its output, a file or its report, and verified.

Records keep the output and the report of `paribus.trial`. A file that the program wrote stays in
`runs`.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from paribus.errors import ParibusError
from paribus.numbers import plural
from paribus.programs.process import clean_line
from paribus.results import Results, TrialFolder
from paribus.study import Study
from paribus.trainers.command.records import LOG, REPORTED, TRAIN_LOSS
from paribus.trainers.command.sections import CommandMetric, MetricSource
from paribus.untrusted_io import RECORD_BYTES, is_regular, read_bytes

OUT = "out"  # what `{folder}` is, in the folder of a trial
MOST_POINTS = 200_000  # of a curve; of a longer one every other point is kept
GOES_ON = re.compile(r"\.?\d|,\d|[eE][-+]?\d")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
Digest = Annotated[str, Field(max_length=64)]


@dataclass
class Finder:
    """The values of one metric so far: the value that counts, and a curve of bounded length.

    Attributes:
        n: the number of values.
        unread: the text that was found instead of a number, if any.
    """

    source: MetricSource
    n: int = 0
    value: float | None = None
    step: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    unread: str = ""

    def read_line(self, line: str) -> None:
        """Add the value in a printed line, if it has one."""
        match = re.search(self.source.stdout, line) if self.source.stdout else None
        if match is None:
            return
        named = match.groupdict()
        group = "value" if "value" in named else 1
        end = match.end(group)
        # `6.57` of `6.57e-06` is another number: a pattern that ends within one has read none.
        rest = line[end : end + 8] if GOES_ON.match(line, end) else ""
        self.add(f"{match[group]} {rest}".rstrip(), named.get("step"))

    def read_rows(self, rows: Iterable[Any], key: str, step: str) -> None:
        """Add the values of JSON rows under `key`, a dotted path; null counts as NaN."""
        for row in rows:
            for content in contents(row, key):
                value = math.nan if content is None else content
                self.add(value, next(iter(contents(row, step)), None))

    def add(self, content: Any, step: Any) -> None:
        """Add a value; a text without a number invalidates the last value."""
        value, step = number(content), number(step)
        if value is None:
            self.unread = str(content)[:80]
            self.n, self.value, self.step = 0, None, None
            return
        self.n += 1
        if step is not None:
            self.points.append((step, value))
            if len(self.points) > MOST_POINTS:
                del self.points[1:-1:2]
        if step is None or self.step is None or step >= self.step:
            self.value, self.step = value, step


def number(text: Any) -> float | None:
    """Return the number in a text or JSON value, including NaN; None if there is no number.

    A comma is accepted only between thousands, because 0,985 may have a decimal comma.
    """
    plain = str(text).strip().rstrip(".,")
    try:
        return float(plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain)
    except ValueError:  # of true and null, too
        return None


def contents(row: Any, key: str) -> list[Any]:
    """Return [value] of a table under a key or a dotted path; an empty list if it is missing."""
    if not isinstance(row, dict):
        return []
    if key in row:
        return [row[key]]
    head, dot, rest = key.partition(".")
    return contents(row.get(head), rest) if dot else []


class Batches(BaseModel):
    """The digest of the first batches of a program."""

    batches: int
    digest: Digest


class ReportLine(BaseModel):
    """A line of a report; unknown keys are ignored."""

    step: int | float | None = None
    log: dict[str, Any] = {}
    report: dict[str, Any] = {}
    data: Batches | None = None
    initial: Annotated[dict[str, Digest], Field(max_length=100_000)] = {}


@dataclass
class Report:
    """The report that a program wrote with `paribus.trial`.

    Attributes:
        results, logged: rows of JSON with their `step`, in order.
        batches: {n: digest of the first n training batches}.
        initial: digests of parameters by name.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    logged: list[dict[str, Any]] = field(default_factory=list)
    batches: dict[int, str] = field(default_factory=dict)
    initial: dict[str, str] = field(default_factory=dict)


def read_report(folder: Path) -> Report:
    """Return the report in the folder of a trial, skipping truncated and foreign lines.

    Raises ParibusError if it cannot be read.
    """
    report, path = Report(), folder / REPORTED
    for content in read_bytes(path, RECORD_BYTES).splitlines() if is_regular(path) else ():
        with contextlib.suppress(ValidationError):
            line = ReportLine.model_validate_json(content)
            for table, rows in ((line.log, report.logged), (line.report, report.results)):
                if table:
                    rows.append({"step": line.step} | table)
            if line.data is not None:
                report.batches[line.data.batches] = line.data.digest
            # After a step they are not initial. Noted twice, both count: a change is a difference.
            for name, digest in ({} if report.logged else line.initial).items():
                both = report.initial.get(name, "") + digest
                report.initial[name] = (
                    hashlib.sha256(both.encode()).hexdigest() if both != digest else digest
                )
    return report


def metrics_of(study: Study) -> dict[str, CommandMetric]:
    """Return the metrics of a command's study."""
    return (study.model_extra or {})["metrics"]


def finders_of(study: Study) -> dict[str, Finder]:
    """Return a `Finder` for each number of a trial."""
    finders = {name: Finder(metric) for name, metric in metrics_of(study).items()}
    loss = study.program.train_loss
    return finders | ({TRAIN_LOSS: Finder(loss)} if loss else {})


def read_rest(name: str, finder: Finder, out: Path, report: Report, where: str) -> None:
    """Read a number that is not printed, from its file in `out` or from the program's report.

    `where` names the trial in errors. Raises ParibusError if it cannot be read.
    """
    source = finder.source
    key = source.key or name
    if source.file:
        finder.read_rows(_rows(out / source.file, where), key, source.step)
    elif not source.stdout:
        finder.read_rows(report.results, key, "step")
        if not finder.n and not finder.unread:
            finder.read_rows(report.logged, key, "step")


def _rows(path: Path, where: str) -> list[Any]:
    """Return the rows of a file of CSV, JSON lines or one JSON value. Raises ParibusError if it
    cannot be read."""
    missing = f"{where}: the trial wrote no {path.name} into {{folder}}, {path.parent}"
    content = read_bytes(path, RECORD_BYTES, missing=missing)
    if path.suffix == ".csv":
        table = csv.DictReader(io.StringIO(content.decode("utf-8", "replace")))
        return [{key: cell for key, cell in row.items() if cell} for row in table]
    try:
        values = [json.loads(content)]
    except (ValueError, RecursionError):
        values = []
        for line in content.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                values.append(json.loads(line))
    return [row for value in values for row in (value if isinstance(value, list) else [value])]


def verified(results: Results) -> tuple[list[str], list[str]]:
    """Read the scores of trials again; return findings and descriptions of the checks."""
    findings: list[str] = []
    trials = [t for t in results.finished if not t.read_json("trial.json").get("failed")]
    for trial in trials:
        try:
            findings += _findings(results.study, trial)
        except ParibusError as error:
            findings.append(f"{trial.label}: {error}")
    if all(metric.file for metric in metrics_of(results.study).values()):
        return findings, ["no scores: the files that they were read from are not sealed"]
    return findings, [f"scores of {plural(len(trials), 'trial')} as printed and reported"]


def _findings(study: Study, folder: TrialFolder) -> list[str]:
    """Return the scores that differ from those in the sealed log and report."""
    finders, report = finders_of(study), read_report(folder.path)
    output = read_bytes(folder.path / LOG, RECORD_BYTES * 8).replace(b"\r", b"\n")
    for line in filter(None, map(clean_line, output.split(b"\n"))):
        for finder in finders.values():
            finder.read_line(line)
    is_cut = folder.read_json("trial.json")["left_out"]
    scores, findings = folder.read_json("evaluation.json"), list[str]()
    for name, source in metrics_of(study).items():
        if source.file or (source.stdout and is_cut):
            continue
        finder = finders[name]
        read_rest(name, finder, Path(), report, folder.label)
        value = finder.value if finder.value is not None and math.isfinite(finder.value) else None
        if value != scores.get(name):
            findings.append(
                f"trial {folder.label}: {name} is {scores.get(name)}, and its records give {value}"
            )
    return findings
