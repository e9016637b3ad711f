"""Logs of modded-nanogpt: the source, a line of `=`, the environment, then lines by step.

    step:3300/3300 val_loss:3.27744 train_time:480.362s step_avg:143.75ms

Several trials in a file start again at the first step. The digest of the source tells the arms of a
folder apart, for a log holds the program that wrote it. Standard output, without the source, is
read as well; `paribus.readers.read` counts it once with its log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from paribus.readers.port import Run, Source, as_number, lines_with, reader, seed_fact
from paribus.untrusted_io import MIB

BAR = b"=" * 20
STEP = re.compile(rb"step:(\d{1,12})/(\d{1,12}) ")
# A value is whole where something follows it: a unit or a space.
PAIR = re.compile(rb"(\w+):([-+.\w]+?)(ms|s)?(?=\s)")
LOGGED = re.compile(rb"step:\d+/\d+ (val|train)_")
BITS = re.compile(rb"step:\d+/\d+ val_loss:\S+ val_bpb:")
PYTORCH = re.compile(rb"PyTorch (?:version )?([0-9][\w.+]*)")
DEVICE = re.compile(rb"(?:NVIDIA|AMD) (?:GeForce |RTX )?[A-Z]+[0-9]+[\w -]*?(?= {2}| *\|| with )")
MOST_SOURCE = 16 * MIB
DIGEST = 12  # characters of it that name an arm


def _detects(source: Source) -> bool:
    # Bits per byte beside the loss: a log of parameter-golf, whose final result has no step.
    return source.matches(LOGGED) and not (source.has(b" val_bpb:") and source.matches(BITS))


@reader(
    "modded-nanogpt",
    says="logs with their source and lines of step:N/M val_loss:X train_time:T",
    detects=_detects,
)
def modded_nanogpt(source: Source) -> Iterator[Run]:
    """Yield the trials of a log, in the order of the file."""
    before: list[bytes] | None = []  # pieces of the source, until the line of `=`
    facts = seed_fact(source.path)
    run: Run | None = None
    for piece in source.pieces():
        if before is not None:
            before.append(piece)
            text = b"".join(before)
            bar = _bar(text)
            if bar:
                facts |= _of_source(text[: bar[0]])
                facts |= _of_environment(text[bar[1] :])
            if bar or LOGGED.search(piece) or len(text) > MOST_SOURCE:
                before = None  # without it, standard output alone
        for step, planned, pairs in _validations(piece):
            if run is None or _starts_again(run, step):
                if run is not None:
                    yield _finished(run)
                run = Run("", facts=dict(facts))
            run.facts["planned_steps"] = planned
            _add(run, step, pairs)
    if run is not None:
        if source.is_cut and not source.tail.endswith(b"ms"):
            run.facts["cut"] = "the last line has no end"
        yield _finished(run)


def _bar(text: bytes) -> tuple[int, int] | None:
    """Return where the line of `=` after the source begins and ends; None where there is none.

    Early logs have such a line before the source as well, and programs have them in comments.
    """
    at = text.find(BAR)
    while at >= 0:
        start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        end = len(text) if end < 0 else end
        if not text[start:end].rstrip(b"\r").strip(b"=") and text[:start].strip(b"=\r\n"):
            return start, end
        at = text.find(BAR, end)
    return None


def _of_source(text: bytes) -> dict[str, str | float]:
    text = text.lstrip(b"=") if text.startswith(BAR) else text
    digest = hashlib.sha256(text.replace(b"\r\n", b"\n").strip()).hexdigest()
    return {"source_digest": digest, "arm": digest[:DIGEST]} if text.strip() else {}


def _of_environment(text: bytes) -> dict[str, str | float]:
    found: dict[str, str | float] = {}
    for name, pattern in (("pytorch", PYTORCH), ("device", DEVICE)):
        if match := pattern.search(text):
            found[name] = match[match.lastindex or 0].decode("ascii", "replace").strip()
    return found


def _validations(piece: bytes) -> Iterator[tuple[int, int, list[tuple[bytes, bytes, bytes]]]]:
    """Yield step, planned steps and pairs of each line that has a validation."""
    for line in lines_with(piece, b" val_"):
        if match := STEP.search(line):
            whole = line + b"\n" if line.endswith(b"ms") else line
            yield int(match[1]), int(match[2]), PAIR.findall(whole, match.end())


def _starts_again(run: Run, step: int) -> bool:
    """Return whether a step begins another trial: back at the first, where a resume is not."""
    curve = next(iter(run.curves.values()), [])
    return len(curve) > 1 and step <= curve[0][0] and step < curve[-1][0]


def _add(run: Run, step: int, pairs: list[tuple[bytes, bytes, bytes]]) -> None:
    for name, value, unit in pairs:
        if name == b"train_time":
            seconds = as_number(value)
            if seconds is not None:
                seconds /= 1000 if unit == b"ms" else 1
                run.curves.setdefault("train_seconds", []).append((step, seconds))
        elif name.startswith(b"val_") and (number := as_number(value)) is not None:
            run.curves.setdefault(name.decode(), []).append((step, number))


def _finished(run: Run) -> Run:
    for name, curve in run.curves.items():
        if name == "train_seconds":
            run.facts["train_seconds"] = curve[-1][1]
        else:
            run.scores[name] = curve[-1][1]
            run.facts["steps"] = max(run.facts.get("steps", 0), curve[-1][0])
    return run
