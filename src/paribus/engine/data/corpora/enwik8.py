"""`enwik8`: the first 10^8 bytes of a dump of English Wikipedia, XML and all (Mahoney)."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from paribus.engine.data.corpora import corpus
from paribus.engine.data.pieces import Document
from paribus.engine.data.reading import CHUNK_BYTES, corpus_files
from paribus.errors import ParibusError
from paribus.study import Data
from paribus.untrusted_io import TEXT_BYTES, open_regular

# As http://mattmahoney.net/dc/textdata.html has them, compared with it on 2026-11-22.
URL = "http://mattmahoney.net/dc/enwik8.zip"
BYTES = 100_000_000
MD5 = "a1fa5ffddb56f4953e226637dabbb36a"
SHA1 = "57b8363b814821dc9d47aa4d41f58733519076b2"


@corpus(
    "enwik8",
    reads=("path",),
    files=corpus_files,
    about=f"{BYTES:,} bytes of English Wikipedia as XML, from {URL}: give its path",
    licence="none stated on its page; the text is Wikipedia's",
)
def enwik8(data: Data, folder: Path) -> Iterator[Document]:
    """One document: the member `enwik8` of the file `data.path`, which is enwik8.zip or enwik8.

    Raises ParibusError where the bytes are not those that were published.
    """
    (file, *_) = corpus_files(data, folder)
    return iter([_parts(file)])


def _parts(file: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    found, length = hashlib.sha1(usedforsecurity=False), 0
    try:
        with _opened(file) as content:
            # Of a member that unpacks to more than was published, no more is read.
            while length <= BYTES and (chunk := content.read(CHUNK_BYTES)):
                found.update(chunk)
                length += len(chunk)
                yield decoder.decode(chunk)
        decoder.decode(b"", final=length <= BYTES)
    except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ParibusError(f"{file} is no enwik8 ({error}); fetch it again from {URL}") from None
    if found.hexdigest() != SHA1:
        size = f"{length:,}" if length <= BYTES else f"more than {BYTES:,}"
        raise ParibusError(
            f"{file} has {size} bytes with SHA-1 {found.hexdigest()[:12]}..., not the "
            f"{BYTES:,} bytes with {SHA1[:12]}... that were published; fetch it again from {URL}"
        )


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of enwik8, or those of its member in enwik8.zip."""
    with open_regular(file, TEXT_BYTES) as content:
        if not zipfile.is_zipfile(content):
            content.seek(0)
            yield content
            return
        with zipfile.ZipFile(content) as archive, archive.open("enwik8") as member:
            yield member
