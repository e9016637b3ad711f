"""The numbers of a trial: read from its output, a file, a reader or its report, and verified.

Records keep the output and the report of `paribus.trial`. A file that the program wrote stays in
`runs`, and the record has its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from paribus import readers
from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.numbers import plural
from paribus.programs.values import Finder, clean_line, find_in_rows
from paribus.results import Results, TrialFolder
from paribus.results.store import OUTPUTS
from paribus.study import Study
from paribus.trainers.command.records import LOG, REPORTED, TRAIN_LOSS
from paribus.trainers.command.sections import CommandMetric, MetricSource
from paribus.untrusted_io import RECORD_BYTES, MalformedError, is_regular, parse_json, read_bytes

OUT = "out"  # what `{folder}` is, in the folder of a trial
Digest = Annotated[str, Field(max_length=64)]


class Batches(BaseModel):
    """The digest of the first batches of a program."""

    batches: int
    digest: Digest


class ReportLine(BaseModel):
    """A line of a report; what it has besides is ignored."""

    step: int | float | None = None
    log: dict[str, Any] = {}
    report: dict[str, Any] = {}
    data: Batches | None = None
    initial: Annotated[dict[str, Digest], Field(max_length=100_000)] = {}


@dataclass
class Report:
    """The report of a program by `paribus.trial`.

    Attributes:
        results, logged: rows of JSON with their `step`, in order.
        batches: {n: digest of the first n training batches}; of several processes, of all theirs.
        initial: digests of parameters by name, of all processes.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    logged: list[dict[str, Any]] = field(default_factory=list)
    batches: dict[int, str] = field(default_factory=dict)
    initial: dict[str, str] = field(default_factory=dict)


def read_report(folder: Path) -> Report:
    """Return the report in the files of a trial's folder, one of each process.

    Lines that are cut, or not ours, are skipped. Raises ParibusError.
    """
    report = Report()
    if (folder / REPORTED).is_file():
        report = _read_report(folder / REPORTED)
    for file in sorted(folder.glob("trial-*.jsonl")):
        of_rank, rank = _read_report(file), file.stem.partition("-")[2]
        report.initial |= {f"{name}@{rank}": digest for name, digest in of_rank.initial.items()}
        both = report.batches.keys() & of_rank.batches.keys()
        report.batches = {n: _joined(report.batches[n], of_rank.batches[n]) for n in both}
    return report


def _read_report(path: Path) -> Report:
    report = Report()
    for content in read_bytes(path, RECORD_BYTES).splitlines():
        with contextlib.suppress(ValidationError):
            line = ReportLine.model_validate_json(content)
            for table, rows in ((line.log, report.logged), (line.report, report.results)):
                if table:
                    rows.append({"step": line.step} | table)
            if line.data is not None:
                report.batches[line.data.batches] = line.data.digest
            # After a step they are not initial. Noted twice, both count: a change is a difference.
            for name, digest in ({} if report.logged else line.initial).items():
                before = report.initial.get(name)
                report.initial[name] = _joined(before, digest) if before else digest
    return report


def _joined(*digests: str) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def metrics_of(study: Study) -> dict[str, CommandMetric]:
    """Return the metrics of a command's study."""
    return (study.model_extra or {})["metrics"]


def sources_of(study: Study) -> dict[str, tuple[MetricSource, str]]:
    """Return the source of each number of a trial, and which direction of it is better."""
    loss = study.program.train_loss
    sources: dict[str, tuple[MetricSource, str]] = {TRAIN_LOSS: (loss, "lower")} if loss else {}
    return {name: (metric, metric.better) for name, metric in metrics_of(study).items()} | sources


def finders_of(study: Study) -> dict[str, Finder]:
    """Return what looks for numbers in the lines of a trial's output."""
    return {
        name: Finder(source.stdout, source.take, better)
        for name, (source, better) in sources_of(study).items()
        if source.stdout
    }


def find_values(
    where: str, name: str, source: MetricSource, better: str, out: Path, report: Report
) -> Finder:
    """Return the values of a metric that is not printed. Raises ParibusError.

    Args:
        where: the trial and the metric, for errors.
        out: the folder that the program wrote into.
    """
    key = source.key or name
    if source.file:
        rows = _rows(out / source.file, where)
        return find_in_rows(rows, key, source.step, source.take, better)
    if source.reader:
        finder = Finder("", source.take, better)
        reading = readers.read([str(out / source.path)], source.reader)
        for path, problem in reading.refused:
            raise ParibusError(f"{where}: {path}: {problem}", code="unreadable")
        for run in reading.runs:
            scores = [(None, run.scores[key])] if key in run.scores else []
            for step, value in run.curves.get(key) or scores:
                finder.add(float(value), step)
        return finder
    results = find_in_rows(report.results, key, "step", source.take, better)
    return results if results.n else find_in_rows(report.logged, key, "step", source.take, better)


def _rows(path: Path, where: str) -> list[Any]:
    """Return the rows of a file of JSON lines, or of one JSON value. Raises ParibusError."""
    missing = f"{where}: the trial wrote no {path.name} into {{folder}}, {path.parent}"
    content = read_bytes(path, RECORD_BYTES, missing=missing)
    try:
        values = [parse_json(content, where, finite=False)]
    except MalformedError:
        values = []
        for line in content.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                values.append(json.loads(line))
    return [row for value in values for row in (value if isinstance(value, list) else [value])]


def file_digests(study: Study, out: Path) -> dict[str, str]:
    """Return SHA-256 of the files that metrics were read from, by their path in `{folder}`."""
    sources = metrics_of(study).values()
    files = {out / source.file for source in sources if source.file}
    for source in sources:
        if source.reader:
            files |= set(map(Path, readers.files_at(str(out / source.path))))
    return {
        path.relative_to(out).as_posix(): file_digest(path)
        for path in sorted(files)
        if path.is_relative_to(out) and is_regular(path)
    }


def verified(results: Results, *, trust: bool) -> tuple[list[str], list[str]]:
    """Read the scores of trials again; returns findings, and descriptions of the checks."""
    findings: list[str] = []
    checks: Counter[str] = Counter()
    for trial in results.finished:
        try:
            findings += _findings(results.study, trial, checks, trust=trust)
        except ParibusError as error:
            findings.append(f"{trial.label}: {error}")
    n = plural(len(results.finished), "trial")
    texts = [f"{check} of {checks[check]} of {n}" for check in sorted(checks)]
    return findings, texts or ["no scores: nothing of what they were read from is kept"]


def _findings(
    study: Study, folder: TrialFolder, checks: Counter[str], *, trust: bool
) -> Iterator[str]:
    trial, label = folder.read_json("trial.json"), f"trial {folder.label}"
    if trial.get("failed"):
        return
    out = folder.path.parents[2] / OUTPUTS / folder.arm / f"seed-{folder.seed}" / OUT
    recorded = trial.get("files", {})
    kept = {name for name in recorded if is_regular(out / name)}
    for name in sorted(kept):
        if file_digest(out / name) != recorded[name]:
            yield f"{label}: {name} was changed after the trial was recorded"
    finders, report = finders_of(study), read_report(folder.path)
    output = read_bytes(folder.path / LOG, RECORD_BYTES * 8).replace(b"\r", b"\n")
    for line in filter(None, map(clean_line, output.split(b"\n"))):
        for finder in finders.values():
            finder.read(line)
    scores, done = folder.read_json("evaluation.json"), set[str]()
    for name, source in metrics_of(study).items():
        place, check = "its log", "scores by pattern from the logs"
        if source.stdout and trial["printed"].get("left_out"):
            continue  # the log lacks some of the output
        if source.file or source.reader:
            place, check = source.file or source.path, f"scores from files in {OUTPUTS}"
            if kept != recorded.keys() or (":" in source.reader and not trust):
                continue  # a file is gone, or a stranger's code would read it
        elif not source.stdout:
            place, check = "what the program said", "scores as reported"
        finder = finders.get(name) or find_values(label, name, source, source.better, out, report)
        value = finder.value if finder.value is not None and math.isfinite(finder.value) else None
        if value != scores.get(name):
            yield f"{label}: {name} is {scores.get(name)}, and {place} gives {value}"
        done.add(check)
    checks.update(done)
