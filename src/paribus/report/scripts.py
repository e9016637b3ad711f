"""The scripts that a page draws its figures with: bundled once a machine, which takes seconds."""

from __future__ import annotations

import contextlib
import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.metadata import version

import vl_convert

from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes
from paribus.untrusted_io import CODE_BYTES, read_text


@cache
def prepare() -> Future[str]:
    """Begin in the background what needs no records: the bundled scripts."""
    return ThreadPoolExecutor(1).submit(javascript)


def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one bundle that ships with vl-convert.

    It is kept in the cache, under the version of vl-convert and its own digest: one that was cut or
    changed is made again.
    """
    folder, of = cache_folder() / "scripts", f"vega-{version('vl-convert-python')}"
    for path in folder.glob(f"{of}-*.js"):
        with contextlib.suppress(ParibusError):
            text = read_text(path, CODE_BYTES)
            if path.stem == f"{of}-{_digest(text)}":
                return text
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(ParibusError):  # a cache that cannot be written is no reason to stop
        write_bytes(folder / f"{of}-{_digest(text)}.js", text.encode())
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
