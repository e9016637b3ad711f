"""Built-in corpora that need no user files, `pydoc` and `shakespeare`."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes
from paribus.untrusted_io import MIB, is_regular, read_bytes

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_FILE = Path("tinyshakespeare") / "input.txt"
MOST_BYTES = 2 * MIB  # it has 1,115,394
TIMEOUT_SECONDS = 30


@corpus("pydoc")
def pydoc(data: Data, folder: Path) -> list[str]:
    """Return the topics in `pydoc_data.topics`, which are sections of Python's language reference.

    The text differs between Python versions. Its license is the PSF License Version 2.
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
    """Return char-rnn's tiny Shakespeare text (1,115,394 characters, public domain).

    The text is read from the folder in the environment variable PARIBUS_DATA, or downloaded once to
    the cache if the variable is not set.
    """
    file = _shakespeare_file()
    if own := os.environ.get("PARIBUS_DATA"):
        if not is_regular(file):
            raise ParibusError(
                f"the folder PARIBUS_DATA = '{own}' does not contain "
                f"{SHAKESPEARE_FILE.as_posix()}; put the text there, or unset PARIBUS_DATA to "
                "download it"
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
            f"{source} has SHA-256 {sha256[:12]}..., but the published text has "
            f"{SHAKESPEARE_SHA256[:12]}...; delete the file and download it again"
        )
    return content
