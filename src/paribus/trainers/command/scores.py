"""Reading and verification of trial scores from a program's output, files or report.

A completed record contains the output and the report written by `paribus.trial`. All other files of
the program stay in `runs`.
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

from paribus.digests import flatten
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
    """Collector of a metric's values, with the final value and a curve of bounded length.

    Attributes:
        source: source of the values.
        n: number of values read.
        value: value at the last step, or None before the first value.
        step: step of `value`, or None if unknown.
        points: curve of (step, value) pairs.
        unread: text that could not be parsed as a number, or "".
    """

    source: MetricSource
    n: int = 0
    value: float | None = None
    step: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    unread: str = ""

    def read_line(self, line: str) -> None:
        """Parse a line of output, and add its value if the line contains one."""
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
        """Add the values at the dotted path `key` in JSON rows, with null as NaN."""
        for row in rows:
            cells = flatten(row) if isinstance(row, dict) else {}
            if key in cells:
                self.add(math.nan if cells[key] is None else cells[key], cells.get(step))

    def add(self, content: Any, step: Any) -> None:
        """Add a value, or discard all earlier values if it is not a number."""
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
    """Parse a string or JSON value as a number (or NaN), or return None if it is not one.

    Commas are accepted only as thousands separators, because 0,985 may have a decimal comma.
    """
    plain = str(text).strip().rstrip(".,")
    try:
        return float(plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain)
    except ValueError:  # of true and null, too
        return None


class Batches(BaseModel):
    """Number and digest of a program's first training batches."""

    batches: int
    digest: Digest


class ReportLine(BaseModel):
    """Line of a report file. Unknown keys are ignored."""

    step: int | float | None = None
    log: dict[str, Any] = {}
    report: dict[str, Any] = {}
    data: Batches | None = None
    initial: Annotated[dict[str, Digest], Field(max_length=100_000)] = {}


@dataclass
class Report:
    """Report that a program wrote with `paribus.trial`.

    Attributes:
        results: reported JSON rows with their `step`, in file order.
        logged: logged JSON rows with their `step`, in file order.
        batches: digests of the first n training batches, keyed by n.
        initial: digests of the initial parameters, keyed by name.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    logged: list[dict[str, Any]] = field(default_factory=list)
    batches: dict[int, str] = field(default_factory=dict)
    initial: dict[str, str] = field(default_factory=dict)


def read_report(folder: Path) -> Report:
    """Read the report in a trial's folder, skipping truncated and invalid lines.

    Raises ParibusError if the report cannot be read.
    """
    report, path = Report(), folder / REPORTED
    for content in read_bytes(path).splitlines() if is_regular(path) else ():
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
    """Return the metrics in a study of the trainer `command`, keyed by name."""
    return (study.model_extra or {})["metrics"]


def finders_of(study: Study) -> dict[str, Finder]:
    """Create a `Finder` for each metric and for the training loss, keyed by name."""
    finders = {name: Finder(metric) for name, metric in metrics_of(study).items()}
    loss = study.program.train_loss
    return finders | ({TRAIN_LOSS: Finder(loss)} if loss else {})


def read_rest(name: str, finder: Finder, out: Path, report: Report, where: str) -> None:
    """Read a metric that is not printed, from its file in `out` or the program's report.

    `where` names the metric in error messages. Raises ParibusError if the file cannot be read.
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
    """Read the rows of a CSV, JSON Lines or JSON file.

    Raises ParibusError if the file cannot be read.
    """
    missing = f"{where}: {path.name} is missing in {path.parent}; write it to {{folder}}"
    content = read_bytes(path, missing=missing)
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
    """Re-read the scores of all trials, and return findings and descriptions of the checks."""
    findings: list[str] = []
    trials = [t for t in results.finished if not t.read_json("trial.json").get("failed")]
    for trial in trials:
        try:
            findings += _findings(results.study, trial)
        except ParibusError as error:
            findings.append(f"{trial.label}: {error}")
    if all(metric.file for metric in metrics_of(results.study).values()):
        return findings, ["no scores, because their source files are not part of the record"]
    return findings, [f"scores of {plural(len(trials), 'trial')} against logs and reports"]


def _findings(study: Study, folder: TrialFolder) -> list[str]:
    """Return a finding for each score that differs from the recorded log or report."""
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
                f"trial {folder.label}: {name} is {scores.get(name)}, but its output gives {value}"
            )
    return findings
