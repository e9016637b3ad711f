"""Where the numbers of a trial are found: in what it printed, wrote or reported; and found again.

Records keep the log and what was reported. A file that the program wrote stays in `runs`, as its
own, and the record has its digest.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from paribus import readers
from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.numbers import plural
from paribus.programs.values import Finder, in_rows, lines_of
from paribus.results import Results, TrialFolder
from paribus.results.store import OUTPUTS
from paribus.study import Study
from paribus.trainers.command.records import LOG, metrics_of
from paribus.trainers.command.reported import Reported, read_reported, reported_value
from paribus.trainers.command.sections import MetricSource
from paribus.untrusted_io import (
    RECORD_BYTES,
    is_regular,
    parse_json,
    read_bytes,
    read_text,
)

OUT = "out"  # what `{folder}` is, in the folder of a trial


def found_of(
    label: str,
    name: str,
    source: MetricSource,
    better: str,
    *,
    out: Path,
    printed: Mapping[str, Finder],
    reported: Reported,
) -> Finder:
    """Return what was found of a number of the trial `label`. Raises ParibusError.

    Args:
        out: the folder that the program wrote into.
        printed: what was found by pattern.
        reported: what the program said of itself.
    """
    if source.stdout:
        return printed[name]
    key = source.key or name
    if source.file:
        rows = _rows(out / source.file, f"trial {label}: metrics.{name}")
        return in_rows(rows, key, source.step, source.take, better)
    if source.reader:
        finder = Finder("", source.take, better)
        for value, step in _by_reader(label, name, source, key, out):
            finder.add(value, step)
        return finder
    return reported_value(reported, key, source.take, better)


def files_read(sources: Iterable[MetricSource], out: Path) -> dict[str, str]:
    """Return SHA-256 of the files that numbers were read from, by their path in `{folder}`."""
    found: set[Path] = set()
    for source in sources:
        if source.file:
            found.add(out / source.file)
        elif source.reader:
            found |= set(map(Path, readers.files_at(str(out / source.path))))
    return {
        path.relative_to(out).as_posix(): file_digest(path)
        for path in sorted(found)
        if path.is_relative_to(out) and is_regular(path)
    }


def _rows(path: Path, where: str) -> Iterator[Any]:
    """Yield the rows of a file of JSON lines, or of one value. Raises ParibusError."""
    missing = f"{where}: the trial wrote no {path.name} into {{folder}}, {path.parent}"
    text = read_text(path, RECORD_BYTES, missing=missing)
    lines = [line for line in text.splitlines() if line.strip()]
    rows = []
    for line in lines:
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    if len(rows) == len(lines):
        for row in rows:
            yield from row if isinstance(row, list) else [row]
        return
    with contextlib.suppress(ParibusError):
        document = parse_json(text, where)
        yield from document if isinstance(document, list) else [document]
        return
    if rows and lines[-1].lstrip().startswith("{") and not lines[-1].rstrip().endswith("}"):
        raise ParibusError(f"{where}: the last line of {path.name} is cut: {lines[-1][:80]}")
    yield from rows  # words among them


def _by_reader(
    label: str, name: str, source: MetricSource, key: str, out: Path
) -> Iterator[tuple[float, float | None]]:
    """Yield the values that a reader finds in what a trial wrote. Raises ParibusError."""
    read = readers.read([str(out / source.path)], source.reader)
    for path, why in read.refused:
        raise ParibusError(f"trial {label}: metrics.{name}: {path}: {why}")
    for run in read.runs:
        curve = run.curves.get(key)
        if curve:
            yield from ((float(value), step) for step, value in curve)
        elif key in run.scores:
            yield float(run.scores[key]), None


def verified(results: Results, *, trust: bool) -> tuple[list[str], list[str]]:
    """Find the scores of a command's trials once more; returns findings, and what was looked at."""
    findings: list[str] = []
    seen: Counter[str] = Counter()
    for trial in results.finished:
        try:
            findings += _findings(results.study, trial, seen, trust=trust)
        except ParibusError as error:
            findings.append(f"{trial.label}: {error}")
    n = len(results.finished)
    texts = [f"{problem} of {seen[problem]} of {plural(n, 'trial')}" for problem in sorted(seen)]
    return findings, texts or ["no scores: nothing of what they were read from is kept"]


def _findings(
    study: Study, folder: TrialFolder, seen: Counter[str], *, trust: bool
) -> Iterator[str]:
    trial = folder.read_json("trial.json")
    if trial.get("failed"):
        return
    out = folder.path.parents[2] / OUTPUTS / folder.arm / f"seed-{folder.seed}" / OUT
    recorded = trial.get("files", {})
    existing = {name for name in recorded if is_regular(out / name)}
    for name in sorted(existing):
        if file_digest(out / name) != recorded[name]:
            yield f"trial {folder.label}: {name} was changed after the trial was recorded"
    metrics = metrics_of(study)
    printed = _printed(metrics, folder)
    reported = read_reported(folder.path)
    scores = folder.read_json("evaluation.json")
    looked: set[str] = set()
    for name, source in metrics.items():
        if source.stdout and trial["printed"].get("left_out"):
            continue  # the log has no longer all that was printed
        if source.reader and ":" in source.reader and not trust:
            continue  # a stranger's code
        if (source.file or source.reader) and not _is_there(source, out, recorded.keys(), existing):
            continue
        finder = found_of(
            folder.label,
            name,
            source,
            source.better,
            out=out,
            printed=printed,
            reported=reported,
        )
        value = finder.value if finder.value is not None and math.isfinite(finder.value) else None
        where = (
            "its log" if source.stdout else source.file or source.path or "what the program said"
        )
        if value != scores.get(name):
            yield f"trial {folder.label}: {name} is {scores.get(name)}, and {where} gives {value}"
        looked.add(
            "scores by pattern from the logs"
            if source.stdout
            else "scores as reported"
            if source.is_reported
            else f"scores from files in {OUTPUTS}"
        )
    seen.update(looked)


def _printed(metrics: Mapping[str, Any], folder: TrialFolder) -> dict[str, Finder]:
    finders = {
        name: Finder(metric.stdout, metric.take, metric.better)
        for name, metric in metrics.items()
        if metric.stdout
    }
    if finders:
        for line in lines_of(read_bytes(folder.path / LOG, RECORD_BYTES * 8)):
            for finder in finders.values():
                finder.hear(line)
    return finders


def _is_there(source: MetricSource, out: Path, recorded: Iterable[str], there: set[str]) -> bool:
    """Return whether all that a number was read from is there still."""
    if source.file:
        return is_regular(out / source.file)
    return bool(there) and there == set(recorded)
