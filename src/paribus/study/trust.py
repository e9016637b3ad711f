"""Code that a study names, and trust in it.

A study file is the user's own, and so is the code beside it. A results folder may come from anybody
and is opened to be read: what it names is run only after the user has been told what it is, and has
said `--trust`.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.numbers import some
from paribus.study.custom_code import SOURCES, Sources, digests_of
from paribus.study.study import Study
from paribus.study.trainer import COMMAND, STACKED
from paribus.untrusted_io import is_regular, read_json

# Own code that measures, as records call it and as the study does.
MEASURING = {
    "own_probes": "probes.own",
    "own_measures": "evaluation.own",
    "own_tasks": "tasks.own",
}
SHOWN = 4  # import paths in an error


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
    kept files that are not the registered ones. Nothing is imported here."""
    runs = ""
    if study.is_foreign and study.trainer == COMMAND:
        words = study.program.command
        runs = f"its command: {words if isinstance(words, str) else ' '.join(words)}"
    elif study.is_foreign and (named := custom_code(study)):
        runs = f"the code that it names: {some(named, SHOWN)}"
    is_kept = study.folder.name == SOURCES
    folder = study.folder.parent if is_kept else study.folder
    if runs:
        raise ParibusError(
            f"{folder} is a results folder, and running its study runs {runs}. Read that; if you "
            "trust it, say --trust (trust=True)",
            code="untrusted",
        )
    if is_kept and (changed := changed_files(folder)):
        raise ParibusError(f"{'; '.join(changed)}; restore what was registered", code="changed")


def changed_files(results: Path) -> list[str]:
    """Return what in `sources/` of a results folder is not what was registered, a line each."""
    registration, kept = results / "registration.json", results / SOURCES
    if not kept.is_dir() or not is_regular(registration):
        return []
    return [
        f"{kept / name} was changed after it was registered"
        for name, digest in read_json(registration)["sources"].items()
        if not is_regular(kept / name) or file_digest(kept / name) != digest
    ]
