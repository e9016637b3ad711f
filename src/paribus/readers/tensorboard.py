"""TensorBoard event files: the scalars of a folder, which is a run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.readers.port import Run, SkippedError, Source, reader
from paribus.untrusted_io import LOG_BYTES, MIB, is_regular, open_regular

RECORD = 64 * MIB  # a single one; images and graphs are skipped, but are read
FORMS = {1: "<f", 2: "<d"}  # of the content of a tensor: DT_FLOAT, DT_DOUBLE


@reader(
    "tensorboard",
    says="event files, the scalars of a folder",
    detects=lambda source: "tfevents" in source.name,
)
def tensorboard(source: Source) -> Iterator[Run]:
    """Yield the run of a folder; its other event files are read with the first of them."""
    own = Path(source.path)
    files = sorted(file for file in own.parent.glob("*tfevents*") if is_regular(file))
    if files and own.name != files[0].name:
        raise SkippedError(f"read with {files[0].name}")
    run = Run()
    for file in files or [own]:
        for record in _records(file, run):
            _add_scalars(record, run)
    if run.curves:
        yield run


def _records(path: Path, run: Run) -> Iterator[bytes]:
    """Yield the records of a TFRecord file: each is its length, a checksum, its content, and
    another checksum; these are left unread.

    A file that ends in a record, of a run that was killed, is read up to there.
    """
    with open_regular(path, LOG_BYTES) as file:
        while header := file.read(12):
            length = int.from_bytes(header[:8], "little")
            if len(header) == 12 and length > RECORD:
                raise ParibusError(f"{path} has a record of {length:,} bytes; is it damaged?")
            content = file.read(length + 4) if len(header) == 12 else b""
            if len(header) < 12 or len(content) < length + 4:
                run.facts["cut"] = f"{path.name} ends within a record"
                return
            yield content[:-4]


def _add_scalars(event: bytes, run: Run) -> None:
    """Add the scalars of an event: field 2 is its step, and field 1 of its summary, field 5, a
    value with a tag."""
    fields = list(_fields(event))
    steps = [value for number, value in fields if number == 2]
    step = steps[-1] if steps else 0
    for number, summary in fields:
        for inner, value in _fields(summary) if number == 5 else ():
            if inner == 1:
                parts = dict(_fields(value))
                scalar = _floats(parts.get(2), "<f") or _tensor(parts.get(8))
                if scalar and isinstance(parts.get(1), bytes):
                    at = step - 2**64 if step >= 2**63 else step
                    run.log(parts[1].decode(), float(at), scalar[0])


def _tensor(content: bytes | None) -> list[float]:
    """Return the values of a tensor, as version 2 of the summaries writes it; none where it is not
    a single number."""
    fields = list(_fields(content or b""))
    parts = dict(fields)
    for _, axis in _fields(parts.get(2, b"")):
        if dict(_fields(axis)).get(1) != 1:
            return []
    values = _floats(parts.get(5), "<f") or _floats(parts.get(6), "<d")
    form = FORMS.get(parts.get(1, 0))
    values = values or (_floats(parts.get(4), form) if form else [])
    return values if len(values) == 1 else []


def _floats(content: bytes | None, form: str) -> list[float]:
    return [value for (value,) in struct.iter_unpack(form, content or b"")]


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of the fields of a message of protocol buffers: a whole number, or
    bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value = message[at : at + size]
            if len(value) < size:
                raise ValueError("a field is cut")
            at += size
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a whole number of seven bits a byte, and where it ends."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
