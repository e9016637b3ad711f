"""The source of the user's own parts, as digests: records depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from paribus.study.closure import closure
from paribus.study.spec import Modules, Setting, Training

SOURCES = "sources"  # in a results folder: the files that its study names
# {file: SHA-256 of what of it is used}; files as they are named below the study's folder.
Sources = dict[str, str]


def source_digests(modules: Modules, folder: Path) -> dict[str, Sources]:
    """What each own module is made of, by site; nothing of it is run.

    Import paths are `package.module:Class` or `file.py:Class`, files relative to `folder`. Raises
    ParibusError where there is no such source.
    """
    named = modules.named
    return _digests(named, "model.modules.{}", folder)


def training_parts(training: Training) -> dict[str, str]:
    """The import paths of the user's own optimizers and loss, by key of the study."""
    optimizer = training.optimizer
    named = {"training.optimizer.name": optimizer.name, "training.loss.name": training.loss.name}
    for i, group in enumerate(optimizer.groups):
        named[f"training.optimizer.groups.{i}"] = group.optimizer or ""
    return {key: path for key, path in named.items() if ":" in path}


def own_parts(setting: Setting) -> tuple[str, ...]:
    """Import paths of the code of the user's own that `setting` trains with, each once, sorted."""
    paths = (setting.model.modules.named, training_parts(setting.training))
    return tuple(sorted({path for named in paths for path in named.values()}))


def own_digests(setting: Setting, folder: Path) -> dict[str, Sources]:
    """The same of all of a setting: own modules by site, own optimizers, loss and corpus by key."""
    named = training_parts(setting.training)
    if ":" in setting.data.corpus:
        named["data.corpus"] = setting.data.corpus
    return source_digests(setting.model.modules, folder) | _digests(named, "{}", folder)


def measuring_digests(own: Iterable[str], key: str, folder: Path) -> dict[str, Sources]:
    """The same of the user's own probes, measures or tasks, by import path; `key` names them."""
    return _digests({path: path for path in own}, key, folder)


def _digests(named: Mapping[str, str], where: str, folder: Path) -> dict[str, Sources]:
    return {
        key: {
            source_name(file, folder): digest
            for file, digest in closure(path, folder, f"{where.format(key)} = '{path}'").items()
        }
        for key, path in named.items()
    }


def source_name(file: Path, folder: Path) -> str:
    """How records call a source: relative to the study's folder, or by its packages."""
    if file.is_relative_to(folder.resolve()):
        return file.relative_to(folder.resolve()).as_posix()
    top = file.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return file.relative_to(top).as_posix()


def changed_sources(there: Mapping[str, Sources], now: Mapping[str, Sources]) -> set[str]:
    """The files whose used parts differ between two of what `source_digests` gives."""
    return {
        file
        for key in there.keys() | now.keys()
        for file in there.get(key, {}).keys() | now.get(key, {}).keys()
        if there.get(key, {}).get(file) != now.get(key, {}).get(file)
    }


def sources_folder(results: Path) -> Path:
    """Where relative paths of a study start that is read from its results folder."""
    return results / SOURCES if (results / SOURCES).is_dir() else results
