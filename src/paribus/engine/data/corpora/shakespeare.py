"""`shakespeare`: the character-level Shakespeare text of char-rnn and nanoGPT (public domain)."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from paribus.engine.data.corpora import corpus
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes
from paribus.study import Data
from paribus.untrusted_io import MIB, is_regular, read_bytes

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
FILE = Path("tinyshakespeare") / "input.txt"
TIMEOUT_SECONDS = 30
MOST_BYTES = 2 * MIB  # it has 1,115,394


@corpus(
    "shakespeare",
    about="1,115,394 characters of plays, downloaded once from the repository of char-rnn",
    licence="public domain",
)
def shakespeare(data: Data, folder: Path) -> list[str]:
    """One document of 1,115,394 characters, from PARIBUS_DATA, the cache or the network."""
    own = os.environ.get("PARIBUS_DATA")
    if own:
        file = Path(own) / FILE
        if not is_regular(file):
            raise ParibusError(
                f"PARIBUS_DATA = '{own}' has no {FILE.as_posix()}; put the text there, "
                "or unset PARIBUS_DATA to download it"
            )
        return [_checked(read_bytes(file, MOST_BYTES), str(file)).decode("utf-8")]
    cached = cache_folder() / FILE
    if not cached.exists():
        _download(cached)
    return [_checked(read_bytes(cached, MOST_BYTES), str(cached)).decode("utf-8")]


def _download(target: Path) -> None:
    try:
        with urllib.request.urlopen(URL, timeout=TIMEOUT_SECONDS) as response:
            content = _checked(response.read(MOST_BYTES), URL)
        write_bytes(target, content)
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ParibusError(
            f"cannot download {URL} ({reason}); put the file at <folder>/{FILE.as_posix()} and set "
            "PARIBUS_DATA=<folder>, or use data.corpus = 'pydoc', which needs no network"
        ) from None


def _checked(content: bytes, source: str) -> bytes:
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ParibusError(
            f"{source} has SHA-256 {found[:12]}..., not the {SHA256[:12]}... of the published "
            "text; delete it and fetch it again"
        )
    return content
