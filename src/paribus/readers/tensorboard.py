"""TensorBoard event files: the scalars of a folder, which is a run."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.readers.port import Run, SkippedError, Source, reader, seed_in
from paribus.untrusted_io import LOG_BYTES, MIB, is_regular, open_regular

RECORD = 64 * MIB  # a single one; images and graphs are skipped, but are read
HEADER, FOOTER = struct.calcsize("<QI"), 4
LENGTH = struct.Struct("<Q")
BLOCK = 1 * MIB  # that is read at once: most records are some ten bytes


def _detects(source: Source) -> bool:
    return "tfevents" in source.name


@reader("tensorboard", says="event files, the scalars of a folder", detects=_detects)
def tensorboard(source: Source) -> Iterator[Run]:
    """Yield the run of a folder; its other event files are read with the first of them."""
    own = Path(source.path)
    files = [own]
    if _detects(source):
        files = [file for file in own.parent.iterdir() if "tfevents" in file.name]
        files = sorted(filter(is_regular, files), key=lambda file: file.name)  # by their time
        if files and own.name != files[0].name:
            raise SkippedError(f"read with {files[0].name}")
    run = Run("")
    for file in files:
        for step, tag, value in _scalars(str(file), run):
            run.curves.setdefault(tag, []).append((step, value))
    for tag, curve in run.curves.items():
        run.scores[tag] = curve[-1][1]
        run.facts["steps"] = max(float(run.facts.get("steps", 0)), curve[-1][0])
    if (seed := seed_in(source.path)) is not None:
        run.facts["seed"] = seed
    if run.curves:
        yield run


def _scalars(path: str, run: Run) -> Iterator[tuple[float, str, float]]:
    """Yield step, tag and value. Raises ParibusError where TensorBoard is not installed."""
    try:
        from google.protobuf.message import DecodeError

        protos: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
    except ImportError:
        raise ParibusError(
            f"{path} is read by TensorBoard, which is not installed: pip install "
            "'paribus[tensorboard]'"
        ) from None
    for record in _records(path, run):
        try:
            event = protos.Event.FromString(record)
        except DecodeError:
            raise ParibusError(f"{path} has a record that is no event; is it damaged?") from None
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                yield float(event.step), value.tag, number


def _number(value: Any) -> float | None:
    """Return a scalar, as version 1 or 2 of the summaries writes it; None for anything else."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    tensor = value.tensor
    if kind != "tensor" or any(axis.size != 1 for axis in tensor.tensor_shape.dim):
        return None
    if tensor.float_val or tensor.double_val:
        return float((tensor.float_val or tensor.double_val)[0])
    form = {1: "<f", 2: "<d"}.get(tensor.dtype)  # DT_FLOAT, DT_DOUBLE
    if form and len(tensor.tensor_content) == struct.calcsize(form):
        return float(struct.unpack(form, tensor.tensor_content)[0])
    return None


def _records(path: str, run: Run) -> Iterator[bytes]:
    """Yield the records of a TFRecord file: length, its checksum, content, its checksum.

    Checksums are left unread: they take longer than the rest. A file that ends in a record, of a
    run that was killed, is read up to there.
    """
    with open_regular(path, LOG_BYTES) as file:
        rest = b""
        while piece := file.read(BLOCK):
            rest, at = rest + piece, 0
            while at + HEADER <= len(rest):
                length = LENGTH.unpack_from(rest, at)[0]
                if length > RECORD:
                    raise ParibusError(f"{path} has a record of {length:,} bytes; is it damaged?")
                start, end = at + HEADER, at + HEADER + length
                if end + FOOTER > len(rest):
                    break
                yield rest[start:end]
                at = end + FOOTER
            rest = rest[at:]
        if rest:
            run.facts["cut"] = f"{Path(path).name} ends within a record"
