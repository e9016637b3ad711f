"""TensorBoard event files: the scalars of a folder, which is a run."""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.readers.port import Curve, Run, SkippedError, Source, reader, seed_fact
from paribus.untrusted_io import LOG_BYTES, MIB, is_regular, open_regular

RECORD = 64 * MIB  # a single one; images and graphs are skipped, but are read
HEADER, FOOTER = struct.calcsize("<QI"), 4
LENGTH = struct.Struct("<Q")
BLOCK = 1 * MIB  # that is read at once: most records are some ten bytes
LEAST, MOST_PLAIN = 20, 128  # bytes of a record that says one number
VERSION = re.compile(rb"\x09.{8}\x1a\x0dbrain\.Event:\d(?:R.*)?", re.DOTALL)  # the first of a file


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
    run, points = Run(""), _Points()
    for file in files:
        _read(str(file), run, points)
    run.curves = points.curves()
    run.facts |= seed_fact(source.path)
    if run.curves:
        yield run.finish()


class _Points:
    """Scalars by tag, piece by piece, each with the number of its record."""

    def __init__(self) -> None:
        self.records = 0
        self.of: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}

    def add(self, tag: str, numbers: Any, steps: Any, values: Any) -> None:
        """Add scalars of one tag, of records by their numbers in the block."""
        at, steps = np.asarray(numbers) + self.records, np.asarray(steps, np.float64)
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            self.of.setdefault(tag, []).append((at, steps, np.asarray(values, np.float64)))

    def curves(self) -> dict[str, Any]:
        """Return the curve of each tag, in the order of the records."""
        curves: dict[str, Any] = {}
        for tag, pieces in self.of.items():
            numbers, steps, values = map(np.concatenate, zip(*pieces, strict=True))
            order = np.argsort(numbers, kind="stable")
            curves[tag] = Curve(steps[order], values[order])
        return curves


def _read(path: str, run: Run, points: _Points) -> None:
    """Add the scalars of a file. Raises ParibusError."""
    for block, starts, ends in _records(path, run):
        unparsed = np.ones(len(starts), bool)
        for length in np.unique(ends - starts):
            same = np.flatnonzero(ends - starts == length)
            if MOST_PLAIN > length > LEAST:
                unparsed[_add_plain(path, block, starts, same, int(length), points)] = False
        for number in np.flatnonzero(unparsed).tolist():
            _add_parsed(path, block[starts[number] : ends[number]], number, points)
        points.records += len(starts)


def _add_plain(
    path: str, block: bytes, starts: np.ndarray, same: np.ndarray, length: int, points: _Points
) -> np.ndarray:
    """Add those of the records `same`, all of one length, that say a single number and no more, as
    PyTorch and version 1 of the summaries write it; returns them.

    That is `09 time(8) 10 step(varint) 2a n 0a n-2 0a m tag(m) 15 float32`, without `10 step` at
    step 0. Parsed one by one they take five times as long.
    """
    content = np.frombuffer(block, np.uint8)[starts[same, None] + np.arange(length)]
    has_step = content[:, 9] == 0x10
    size = 1 + np.argmin(content[:, 10:20] & 0x80, axis=1)  # of the varint
    summary = np.where(has_step, 10 + size, 9)  # where 2a is
    done = []
    for at in np.unique(summary).tolist():
        tagged = length - at - 11
        if tagged < 1:
            continue
        layout = {0: 0x09, at: 0x2A, at + 1: length - at - 2, at + 2: 0x0A}
        layout |= {at + 3: length - at - 4, at + 4: 0x0A, at + 5: tagged, length - 5: 0x15}
        is_plain = (summary == at) & (content[:, list(layout)] == list(layout.values())).all(axis=1)
        plain = content[is_plain]
        if not len(plain):
            continue
        bits = (plain[:, 10:at] & 0x7F).astype(np.uint64)
        steps = (bits << (7 * np.arange(bits.shape[1], dtype=np.uint64))).sum(axis=1)
        values = np.ascontiguousarray(plain[:, -4:]).view("<f4")[:, 0]
        names = np.ascontiguousarray(plain[:, at + 6 : -5]).view(f"V{tagged}")[:, 0]
        numbers = same[is_plain]
        for name in dict.fromkeys(names.tolist()):
            is_tag = names == np.void(name)
            points.add(
                _text(name, path), numbers[is_tag], steps.view(np.int64)[is_tag], values[is_tag]
            )
        done.append(numbers)
    return np.concatenate([np.array([], int), *done])


def _text(name: bytes, path: str) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _damaged(path) from None


def _damaged(path: str) -> ParibusError:
    return ParibusError(f"{path} has a record that is not an event; is it damaged?")


def _add_parsed(path: str, record: bytes, number: int, points: _Points) -> None:
    """Add the scalars of any record. Raises ParibusError where TensorBoard is not installed."""
    if VERSION.fullmatch(record):
        return
    try:
        from google.protobuf.message import DecodeError

        protos: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
    except ImportError:
        raise ParibusError(
            f"{path} is read by TensorBoard, which is not installed: pip install "
            "'paribus[tensorboard]'"
        ) from None
    try:
        event = protos.Event.FromString(record)
    except DecodeError:
        raise _damaged(path) from None
    for value in event.summary.value:
        if (scalar := _number(value)) is not None:
            points.add(value.tag, [number], [event.step], [scalar])


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


def _records(path: str, run: Run) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    """Yield pieces of a TFRecord file, and where in each its records begin and end.

    A record is its length, its checksum, its content, its checksum. Checksums are left unread: they
    take longer than the rest. A file that ends in a record, of a run that was killed, is read up to
    there.
    """
    with open_regular(path, LOG_BYTES) as file:
        rest = b""
        while piece := file.read(BLOCK):
            rest, at = rest + piece, 0
            starts, ends = [], []
            last = len(rest) - HEADER
            while at <= last:
                length = LENGTH.unpack_from(rest, at)[0]
                if length > RECORD:
                    raise ParibusError(f"{path} has a record of {length:,} bytes; is it damaged?")
                end = at + HEADER + length
                if end + FOOTER > len(rest):
                    break
                starts.append(at + HEADER)
                ends.append(end)
                at = end + FOOTER
            yield rest, np.array(starts, int), np.array(ends, int)
            rest = rest[at:]
        if rest:
            run.facts["cut"] = f"{Path(path).name} ends within a record"
