"""The source of the user's own modules and probes, as digests: records depend on it."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

from paribus.errors import ParibusError
from paribus.foreign import CODE_BYTES, is_regular, read_bytes
from paribus.study.spec import Modules


def source_digests(modules: Modules, folder: Path) -> dict[str, str]:
    """SHA-256 of the source file of each own module, by site; nothing of it is run.

    Import paths are `package.module:Class` or `file.py:Class`, files relative to `folder`. Raises
    ParibusError where there is no such source.
    """
    named = {site: path for site, path in modules.model_dump().items() if path is not None}
    return _digests(named, "model.modules.{}", folder)


def probe_digests(own: Iterable[str], folder: Path) -> dict[str, str]:
    """The same of the user's own probes, by import path."""
    return _digests({path: path for path in own}, "probes.own", folder)


def _digests(named: Mapping[str, str], where: str, folder: Path) -> dict[str, str]:
    digests = {}
    for key, path in named.items():
        file = _source(path.partition(":")[0], folder, f"{where.format(key)} = '{path}'")
        digests[key] = hashlib.sha256(read_bytes(file, CODE_BYTES)).hexdigest()
    return digests


def _source(name: str, folder: Path, where: str) -> Path:
    if name.endswith(".py"):
        file = folder / name
        if not is_regular(file):
            raise ParibusError(f"{where}: no file {file}; paths start at the study's folder")
        return file
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ParibusError(f"{where} cannot be imported: {error}") from None
    if spec is None or spec.origin is None or not is_regular(spec.origin):
        raise ParibusError(f"{where} cannot be imported: no module named '{name}'")
    return Path(spec.origin)
