"""The source of the user's own parts, as digests: records depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paribus.study.closure import closure
from paribus.study.spec import Setting

SOURCES = "sources"  # in a results folder: the files that its study names
# {file: SHA-256 of what of it is used}; files as they are named below the study's folder.
Sources = dict[str, str]


def own_named(setting: Any) -> dict[str, str]:
    """Import paths of all code of the user's own that a trial of `setting` is made with.

    Own modules by site; own optimizers, loss, corpora and curriculum by key of the study.
    """
    if not isinstance(setting, Setting):  # its own code is the trainer itself
        return {}
    optimizer, loss = setting.training.optimizer, setting.training.loss
    named = {"training.optimizer.name": optimizer.name, "training.loss.name": loss.name}
    for i, group in enumerate(optimizer.groups):
        named[f"training.optimizer.groups.{i}"] = group.optimizer or ""
    named |= setting.data.own
    others = {key: path for key, path in named.items() if ":" in path}
    return setting.model.modules.named | others


def own_parts(setting: Setting) -> tuple[str, ...]:
    """Those of them that compute, each once, sorted: all but what gives or sorts text alone."""
    named = own_named(setting).items()
    return tuple(sorted({path for key, path in named if not key.startswith("data.")}))


def own_digests(setting: Setting, folder: Path) -> dict[str, Sources]:
    """Return what each of `own_named` is made of; nothing of it is run.

    Import paths are `package.module:Class` or `file.py:Class`, files relative to `folder`. Raises
    ParibusError where there is no such source.
    """
    named = own_named(setting)
    sites = setting.model.modules.named if named else ()
    return {
        key: _sources(path, f"model.modules.{key}" if key in sites else key, folder)
        for key, path in named.items()
    }


def measuring_digests(own: Iterable[str], key: str, folder: Path) -> dict[str, Sources]:
    """Return the same of the user's own probes, measures or tasks, by import path; `key` names
    them."""
    return {path: _sources(path, key, folder) for path in own}


def _sources(path: str, where: str, folder: Path) -> Sources:
    used = closure(path, folder, f"{where} = '{path}'")
    return {source_name(file, folder): digest for file, digest in used.items()}


def source_name(file: Path, folder: Path) -> str:
    """How records call a source: relative to the study's folder, or by its packages."""
    if file.is_relative_to(folder.resolve()):
        return file.relative_to(folder.resolve()).as_posix()
    top = file.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return file.relative_to(top).as_posix()


def changed_sources(there: Mapping[str, Sources], now: Mapping[str, Sources]) -> set[str]:
    """Return the files whose used parts differ between two of what `own_digests` gives."""
    return {
        file
        for key in there.keys() | now.keys()
        for file in there.get(key, {}).keys() | now.get(key, {}).keys()
        if there.get(key, {}).get(file) != now.get(key, {}).get(file)
    }


def sources_folder(results: Path) -> Path:
    """Where relative paths of a study start that is read from its results folder."""
    return results / SOURCES if (results / SOURCES).is_dir() else results
