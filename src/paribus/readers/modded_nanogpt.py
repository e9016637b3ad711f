"""Logs of modded-nanogpt: the source, a line of `=`, the environment, then lines by step.

    step:3300/3300 val_loss:3.27744 train_time:480.362s step_avg:143.75ms

The digest of the source tells the arms of a folder apart, as a log holds the program that wrote it.
Standard output, without the source, is read as well; `counted_once` counts it once with its log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from paribus.readers.lines import Form, Line, read_lines
from paribus.readers.port import Run, Source, Value, reader
from paribus.untrusted_io import MIB

BAR = re.compile(rb"^={20,}\r?\n", re.MULTILINE)
LOGGED = re.compile(rb"step:\d+/\d+ (val|train)_")
# Bits per byte beside the loss: a log of parameter-golf, whose final result has no step.
BITS = re.compile(rb"step:\d+/\d+ val_loss:\S+ val_bpb:")
PYTORCH = re.compile(rb"PyTorch (?:version )?([0-9][\w.+]*)")
DEVICE = re.compile(rb"((?:NVIDIA|AMD) (?:GeForce |RTX )?[A-Z]+[0-9]+[\w -]*?)(?= {2}| *\|| with )")
MOST_SOURCE = 16 * MIB
DIGEST = 12  # characters of it that name an arm
TIME = r"train_time:(?:(?P<train_seconds__ms>[.\d]+)ms|(?P<train_seconds>[.\d]+)s)"
FORM = Form(
    name="modded-nanogpt",
    about="logs with their source and lines of step:N/M val_loss:X train_time:T",
    recognise="",
    score=("val_loss",),
    line=(
        Line(
            pattern=rf"step:(?P<step>\d{{1,12}})/(?P<planned_steps>\d{{1,12}}) (?=val_)"
            rf"(?:[^\n]*?{TIME})?",
            pairs=r"(?P<name>val_\w+):(?P<value>NUMBER)",
        ),
    ),
)


def _detects(source: Source) -> bool:
    return source.matches(LOGGED) and not source.matches(BITS)


@reader(FORM.name, says=FORM.about, detects=_detects)
def modded_nanogpt(source: Source) -> Iterator[Run]:
    """Yield the trials of a log, in the order of the file."""
    yield from read_lines(FORM, source, _read_beginning(source))


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
