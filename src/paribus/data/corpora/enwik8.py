"""`enwik8`: the first 10^8 bytes of a dump of English Wikipedia, XML and all (Mahoney)."""

from __future__ import annotations

import codecs
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from paribus.data.corpora import corpus
from paribus.data.pieces import Document
from paribus.data.reading import CHUNK_BYTES, corpus_files
from paribus.errors import ParibusError
from paribus.study import Data

# Published at http://mattmahoney.net/dc/textdata.html
URL = "http://mattmahoney.net/dc/enwik8.zip"
BYTES = 100_000_000
MD5 = "a1fa5ffddb56f4953e226637dabbb36a"
SHA1 = "57b8363b814821dc9d47aa4d41f58733519076b2"


@corpus(
    "enwik8",
    reads=("path",),
    files=corpus_files,
    about=f"{BYTES:,} bytes of English Wikipedia as XML, from {URL}: give its path",
    licence="GFDL and CC BY-SA, as the Wikipedia of 2006",
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
            while chunk := content.read(CHUNK_BYTES):
                found.update(chunk)
                length += len(chunk)
                yield decoder.decode(chunk)
            yield decoder.decode(b"", final=True)
    except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ParibusError(f"{file} is no enwik8 ({error}); fetch it again from {URL}") from None
    if found.hexdigest() != SHA1:
        raise ParibusError(
            f"{file} has {length:,} bytes with SHA-1 {found.hexdigest()[:12]}..., not the "
            f"{BYTES:,} bytes with {SHA1[:12]}... that were published; fetch it again from {URL}"
        )


def _opened(file: Path):
    if zipfile.is_zipfile(file):
        return zipfile.ZipFile(file).open("enwik8")
    return file.open("rb")
