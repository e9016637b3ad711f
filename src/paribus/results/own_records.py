"""Whether what lies in a trial's folder is that trial's own, and no copy of another's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.results.record_format import records_of
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study, changed_sources
from paribus.study.custom_code import Sources


def require_own(
    study: Study, finished: Iterable[TrialFolder], records: dict[tuple[str, int], dict[str, Any]]
) -> None:
    """Raise ParibusError where a trial's records are those of another arm, seed or setting."""
    settings = {arm: study.setting(arm) for arm in study.arms}
    dumped = {arm: setting.model_dump(mode="json") for arm, setting in settings.items()}
    records_format = records_of(study)
    kept = {arm: list(records_format.kept_steps(one)) for arm, one in settings.items()}
    for folder in finished:
        trial = records[folder.arm, folder.seed]
        expected = {"arm": folder.arm, "seed": folder.seed, "setting": dumped[folder.arm]}
        for name, value in expected.items():
            if trial.get(name) != value:
                raise ParibusError(
                    f"trial {folder.label}: its records are of another {name}; "
                    f"delete {folder.path} and run again"
                )
        if folder.sealed_steps != kept[folder.arm]:
            raise ParibusError(
                f"trial {folder.label}: it has weights of other steps than training.keep names; "
                f"delete {folder.path} and run again"
            )


def require_choice(study: Study, folder: Path, record: dict[str, Any]) -> None:
    """Raise ParibusError where a study's arms have other values than tuning.json, `record`, says.

    A study that is not tuned yet has chosen nothing.
    """
    there = study.tuning.chosen if study.tuning else {}
    sealed = {arm: one["values"] for arm, one in record.get("chosen", {}).items()}
    if there and there != sealed:
        raise ParibusError(
            f"{folder}: study.json has other values for its arms than tuning.json chose; restore it"
        )


def require_distinct(
    study: Study, finished: Iterable[TrialFolder], records: dict[tuple[str, int], dict[str, Any]]
) -> None:
    """Raise ParibusError where one arm has the same trial under two seeds, or code that changed."""
    batches: dict[tuple[str, str], TrialFolder] = {}
    code: dict[str, tuple[TrialFolder, dict[str, Sources]]] = {}
    for folder in finished:
        trial = records[folder.arm, folder.seed]
        alike = records_of(study).twin(trial)
        twin = batches.setdefault((folder.arm, alike), folder) if alike else folder
        if twin is not folder:
            raise ParibusError(
                f"trials {twin.label} and {folder.label} saw the same batches: one is a copy; "
                f"delete {folder.path} and run again"
            )
        first, sources = code.setdefault(folder.arm, (folder, trial["own_modules"]))
        changed = changed_sources(sources, trial["own_modules"])
        if changed:
            raise ParibusError(
                f"trials {first.label} and {folder.label} were trained with different versions of "
                f"{', '.join(sorted(changed))}; delete {folder.path} and run again"
            )
