"""Trust in custom code: code that a results folder names is refused without `--trust`.

A study file is the user's own, and so is the code beside it. A results folder may come from anybody
and is opened to be read: what it names is run only after the user has been told what it is, and has
said `--trust`.
"""

from __future__ import annotations

import hashlib
from operator import attrgetter
from pathlib import Path

from paribus.errors import ParibusError
from paribus.numbers import some
from paribus.study.custom_code import SOURCES, Sources, digests_of
from paribus.study.importing import own_file
from paribus.study.study import Study
from paribus.study.trainer import COMMAND, STACKED
from paribus.untrusted_io import CODE_BYTES, TOKENIZER_BYTES, is_regular, read_bytes, read_json

# Own code that measures, as records call it and as the study does.
MEASURING = {
    "own_probes": "probes.own",
    "own_measures": "evaluation.own",
    "own_tasks": "tasks.own",
}
SHOWN = 4  # of the files and modules, in an error


def custom_code(study: Study) -> tuple[str, ...]:
    """Return every import path of the user's own parts that `study` names, the rule included."""
    trained = [path for arm in study.arms for path in study.setting(arm).own_named.values()]
    measuring = [path for key in MEASURING.values() for path in _own(study, key)]
    import_paths = [name for name in (study.trainer, study.decision.rule) if ":" in name]
    return tuple(dict.fromkeys([*trained, *measuring, *import_paths]))


def step_code(study: Study, arm: str) -> tuple[str, ...]:
    """Return those that a training step of `arm` runs: its own parts that compute, and probes."""
    return (*study.setting(arm).own_parts, *_own(study, "probes.own"))


def _own(study: Study, key: str) -> tuple[str, ...]:
    """Return what a key of the engine's sections names; another trainer has none."""
    return attrgetter(key)(study) if study.trainer == STACKED else ()


def measuring_record(study: Study) -> dict[str, dict[str, Sources]]:
    """Return the recorded sources of custom probes, measures and tasks, by import path."""
    return {
        record: digests_of(_own(study, key), key, study.folder) for record, key in MEASURING.items()
    }


def rule_record(study: Study) -> dict[str, Sources]:
    """Return what a registration holds of the source of the user's own rule, by import path."""
    return digests_of([study.decision.rule], "decision.rule", study.folder)


def require_trust(study: Study) -> None:
    """Raise ParibusError where running `study` would run code that a results folder names, or use
    files that a results folder keeps and that are not the registered ones.

    Nothing is imported here, and nothing of the code is looked at but its digest.
    """
    runs = ""
    if study.is_foreign and study.trainer == COMMAND:
        words = study.program.command
        runs = f"its command: {words if isinstance(words, str) else ' '.join(words)}"
    elif study.is_foreign and (named := custom_code(study)):
        described = [_described(path, study.folder) for path in named]
        runs = f"the code that it names: {some(described, SHOWN)}"
    if runs:
        folder = study.folder.parent if study.folder.name == SOURCES else study.folder
        raise ParibusError(
            f"{folder} is a results folder, and running its study runs {runs}. Read that; if you "
            "trust it, say --trust (trust=True)",
            code="untrusted",
        )
    require_kept(study.folder)


def _described(path: str, folder: Path) -> str:
    module = path.partition(":")[0]
    if not module.endswith(".py"):
        return f"'{path}', whatever is installed under that name"
    try:
        digest = hashlib.sha256(read_bytes(own_file(module, folder), CODE_BYTES)).hexdigest()
    except ParibusError:
        return f"'{path}', which is not there"
    return f"'{path}', SHA-256 {digest}"


def changed_files(results: Path) -> list[str]:
    """Return what in `sources/` of a results folder is not what was registered, a line each."""
    registration, kept = results / "registration.json", results / SOURCES
    if not kept.is_dir() or not is_regular(registration):
        return []
    registered = read_json(registration)
    sources = registered.get("sources") if isinstance(registered, dict) else None
    if not isinstance(sources, dict):
        return []
    return [line for name, digest in sources.items() if (line := _changed(kept, name, digest))]


def require_kept(folder: Path) -> None:
    """Raise ParibusError where `folder`, which a study's paths start at, is the `sources/` of a
    results folder and holds other files than were registered."""
    changed = changed_files(folder.parent) if folder.name == SOURCES else []
    if changed:
        raise ParibusError(f"{'; '.join(changed)}; restore what was registered")


def _changed(kept: Path, name: str, digest: object) -> str:
    """Return why the file `name` is not the registered one; empty where it is."""
    file = kept / name
    try:
        if not file.resolve().is_relative_to(kept.resolve()):
            return f"{file} is registered, and lies outside of {kept}"
        if not is_regular(file):
            return f"{file} is missing, which was registered"
        same = hashlib.sha256(read_bytes(file, TOKENIZER_BYTES)).hexdigest() == digest
    except (OSError, ValueError):  # no name that a file can have
        same = False
    return "" if same else f"{file} was changed after it was registered"
