"""Discovery of a study's custom code, and checks that this code is trusted.

Study files are trusted, together with the code beside them. A results folder may come from anyone,
so its code runs only if the user passes `--trust`.
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
    """Return the unique import paths of all custom code that `study` uses."""
    trained = [path for arm in study.arms for path in study.setting(arm).own_named.values()]
    measuring = [path for key in MEASURING.values() for path in _own(study, key)]
    import_paths = [name for name in (study.trainer, study.decision.rule) if ":" in name]
    return tuple(dict.fromkeys([*trained, *measuring, *import_paths]))


def step_code(study: Study, arm: str) -> tuple[str, ...]:
    """Return the import paths of custom code that runs in the training steps of `arm`."""
    return (*study.setting(arm).own_parts, *_own(study, "probes.own"))


def _own(study: Study, key: str) -> tuple[str, ...]:
    """Return the import paths under a dotted study key, or () for other trainers."""
    return attrgetter(key)(study) if study.trainer == STACKED else ()


def measuring_record(study: Study) -> dict[str, dict[str, Sources]]:
    """Return source digests of custom probes, measures and tasks, keyed by kind and import path."""
    return {
        record: digests_of(_own(study, key), key, study.folder) for record, key in MEASURING.items()
    }


def require_trust(study: Study) -> None:
    """Raise ParibusError if `study` would run untrusted code or use modified files.

    Code from a results folder is untrusted, and files in its `sources/` must match the registered
    digests. No custom code is imported.
    """
    runs = ""
    if study.is_foreign and study.trainer == COMMAND:
        words = study.program.command
        runs = f"its command: {words if isinstance(words, str) else ' '.join(words)}"
    elif study.is_foreign and (named := custom_code(study)):
        runs = f"its custom code: {some(named, SHOWN)}"
    is_kept = study.folder.name == SOURCES
    folder = study.folder.parent if is_kept else study.folder
    if runs:
        raise ParibusError(
            f"{folder} is a results folder and may come from someone else; running its study runs "
            f"{runs}. Read this code first, then pass --trust (trust=True) if you trust it",
            code="untrusted",
        )
    if is_kept and (changed := changed_files(folder)):
        raise ParibusError(f"{'; '.join(changed)}; restore the registered files", code="changed")


def changed_files(results: Path) -> list[str]:
    """Return an error message for each file in `sources/` that changed after registration."""
    registration, kept = results / "registration.json", results / SOURCES
    if not kept.is_dir() or not is_regular(registration):
        return []
    return [
        f"{kept / name} was changed after registration"
        for name, digest in read_json(registration)["sources"].items()
        if not is_regular(kept / name) or file_digest(kept / name) != digest
    ]
