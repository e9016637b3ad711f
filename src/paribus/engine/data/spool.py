"""Text on its way from one pass to the next: bytes of documents, beside memory where they are many.

Documents stand one after the other, each closed by END. What is kept of a text is a range of them.
"""

from __future__ import annotations

import codecs
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np

from paribus.engine.data.pieces import Document, Piece, pieces
from paribus.errors import ParibusError
from paribus.files import cache_folder

# The end of a document, among bytes of UTF-8, which has no such byte.
END = b"\xff"
MEMORY_BYTES = 2**21  # more of them stand in a file without a name, in the folder of the cache
COPY_BYTES = 2**20


def encode(text: str) -> bytes:
    """UTF-8, of lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")


class Spool:
    """Bytes that are written in order, and then read at any place; `length` of them."""

    def __init__(self) -> None:
        self.length = 0
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None
        self._view: bytes | mmap.mmap | None = None

    def write(self, content: bytes) -> None:
        """Add `content`. Raises ParibusError where the cache cannot be written."""
        self.length += len(content)
        self._buffer += content
        if len(self._buffer) > MEMORY_BYTES:
            self._flush()

    def _flush(self) -> None:
        folder = cache_folder()
        try:
            if self._file is None:
                folder.mkdir(parents=True, exist_ok=True)
                # It goes with this. A buffer of its own would be written where nobody expects it.
                self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            left = memoryview(self._buffer)
            while left:  # a disk that is nearly full takes a part
                left = left[self._file.write(left) :]
        except OSError as error:
            raise ParibusError(
                f"cannot write the cache {folder}: {error.strerror}; set PARIBUS_CACHE to a "
                "folder that can be written"
            ) from None
        self._buffer = bytearray()

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def truncate(self, length: int) -> None:
        """Take back what was written after the first `length` bytes."""
        excess = self.length - length
        if excess <= len(self._buffer):
            del self._buffer[len(self._buffer) - excess :]
        else:
            assert self._file is not None
            self._buffer = bytearray()
            self._file.seek(length)
            self._file.truncate()
        self.length = length

    def view(self) -> bytes | mmap.mmap:
        """All of it; nothing is written any more."""
        if self._view is None:
            if self._file is None or self.length == 0:  # an empty file cannot be mapped
                self._view = bytes(self._buffer)
            else:
                self._flush()
                self._view = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
                self._file.close()
        return self._view


@dataclass(frozen=True)
class Part:
    """Documents between two places of a spool; the last one may go on elsewhere.

    Gone through, it gives their pieces, as often as it is asked.
    """

    spool: Spool
    start: int
    stop: int

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Part:
        """All of `documents`."""
        spool = Spool()
        for document in documents:
            before = spool.length
            for text in (document,) if isinstance(document, str) else document:
                spool.write(encode(text))
            if spool.length > before:
                spool.write(END)
        return cls(spool, 0, spool.length)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def is_open(self) -> bool:
        """Whether its last document goes on elsewhere."""
        return self.stop > self.start and self.spool.view()[self.stop - 1] != END[0]

    @property
    def bytes(self) -> np.ndarray:
        """[n] of all its documents with their ends, not in memory where they are many, uint8."""
        return np.frombuffer(self.spool.view(), np.uint8)[self.start : self.stop]

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, some at a time."""
        view = self.spool.view()
        for start in range(self.start, self.stop, COPY_BYTES):
            yield view[start : min(start + COPY_BYTES, self.stop)]

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of its text, without the ends of documents."""
        return len(self) - sum(chunk.count(END) for chunk in self.chunks())

    def texts(self) -> Iterator[str]:
        """Of a single document without its end: its text, some at a time."""
        return _decoded(self.spool.view(), self.start, self.stop)

    def __iter__(self) -> Iterator[Piece]:
        is_open = self.is_open
        before = None
        for piece in pieces(self._documents()):
            if before:
                yield before
            before = piece
        if before:
            yield before._replace(is_last=False) if is_open else before

    def _documents(self) -> Iterator[Iterator[str]]:
        view, at = self.spool.view(), self.start
        while at < self.stop:
            end = view.find(END, at, self.stop)
            end = self.stop if end < 0 else end
            yield _decoded(view, at, end)
            at = end + 1


def _decoded(view: bytes | mmap.mmap, start: int, stop: int) -> Iterator[str]:
    # The incremental decoder cuts no character; lone surrogates are three bytes like others.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    for at in range(start, stop, COPY_BYTES):
        end = min(at + COPY_BYTES, stop)
        yield decoder.decode(view[at:end], final=end == stop)
