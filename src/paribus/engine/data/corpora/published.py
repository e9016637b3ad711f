"""Texts of fixed content: `enwik8`, `pydoc` and `shakespeare`."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.data.corpora.text_files import corpus_files
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes
from paribus.untrusted_io import MIB, is_regular, open_regular, read_bytes

# As http://mattmahoney.net/dc/textdata.html has them, compared with it on 2026-11-22.
ENWIK8_URL = "http://mattmahoney.net/dc/enwik8.zip"
ENWIK8_BYTES = 100_000_000
ENWIK8_SHA1 = "57b8363b814821dc9d47aa4d41f58733519076b2"

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_FILE = Path("tinyshakespeare") / "input.txt"
MOST_BYTES = 2 * MIB  # it has 1,115,394
TIMEOUT_SECONDS = 30


@corpus(
    "enwik8",
    reads=("path",),
    files=corpus_files,
)
def enwik8(data: Data, folder: Path) -> list[str]:
    """Yield enwik8 as one document; `data.path` is enwik8.zip or the unpacked file.

    100,000,000 bytes of English Wikipedia as XML; its page states no licence. Raises ParibusError
    if the bytes differ from the published file.
    """
    (file, *_) = corpus_files(data, folder)
    try:
        with open_regular(file) as opened:
            if zipfile.is_zipfile(opened):
                with zipfile.ZipFile(opened) as archive, archive.open("enwik8") as member:
                    content = member.read(ENWIK8_BYTES + 1)
            else:
                opened.seek(0)
                content = opened.read(ENWIK8_BYTES + 1)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ParibusError(
            f"{file} is not enwik8 ({error}); fetch it again from {ENWIK8_URL}"
        ) from None
    if hashlib.sha1(content, usedforsecurity=False).hexdigest() != ENWIK8_SHA1:
        raise ParibusError(
            f"{file} differs from the published file ({ENWIK8_BYTES:,} bytes with SHA-1 "
            f"{ENWIK8_SHA1[:12]}...); fetch it again from {ENWIK8_URL}"
        )
    return [content.decode()]


@corpus("pydoc")
def pydoc(data: Data, folder: Path) -> list[str]:
    """Return the topics of `pydoc_data.topics`, the language reference that ships with Python.

    The text differs between Python versions; PSF License Version 2.
    """
    from pydoc_data.topics import topics  # half a megabyte of source: only when asked for

    return [topics[name] for name in sorted(topics)]


def _shakespeare_file() -> Path:
    own = os.environ.get("PARIBUS_DATA")
    return (Path(own) if own else cache_folder()) / SHAKESPEARE_FILE


@corpus(
    "shakespeare",
    # None before it is downloaded: its digest is stated here.
    files=lambda data, folder: [file for file in [_shakespeare_file()] if is_regular(file)],
)
def shakespeare(data: Data, folder: Path) -> list[str]:
    """Return the Shakespeare text of char-rnn, from PARIBUS_DATA, the cache or the network.

    1,115,394 characters, downloaded once; public domain.
    """
    file = _shakespeare_file()
    if own := os.environ.get("PARIBUS_DATA"):
        if not is_regular(file):
            raise ParibusError(
                f"PARIBUS_DATA = '{own}' has no {SHAKESPEARE_FILE.as_posix()}; put the text "
                "there, or unset PARIBUS_DATA to download it"
            )
    elif not file.exists():
        _download(file)
    return [_checked(read_bytes(file, MOST_BYTES), str(file)).decode("utf-8")]


def _download(target: Path) -> None:
    try:
        with urllib.request.urlopen(SHAKESPEARE_URL, timeout=TIMEOUT_SECONDS) as response:
            content = _checked(response.read(MOST_BYTES), SHAKESPEARE_URL)
        write_bytes(target, content)
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ParibusError(
            f"cannot download {SHAKESPEARE_URL} ({reason}); put the file at "
            f"<folder>/{SHAKESPEARE_FILE.as_posix()} and set PARIBUS_DATA=<folder>, or use "
            "data.corpus = 'pydoc', which needs no network"
        ) from None


def _checked(content: bytes, source: str) -> bytes:
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != SHAKESPEARE_SHA256:
        raise ParibusError(
            f"{source} has SHA-256 {sha256[:12]}..., not the {SHAKESPEARE_SHA256[:12]}... of the "
            "published text; delete it and fetch it again"
        )
    return content
