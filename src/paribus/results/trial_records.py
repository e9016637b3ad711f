"""Records of all trials together: what they have in common is in memory once, and none is a copy.

Settings, declarations and descriptions of the data are the same in all trials of an arm, and most
of what a record holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.results.record_format import records_of
from paribus.results.records import require
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study, changed_sources
from paribus.study.custom_code import Sources

Trial = tuple[str, int]


def read_trials(study: Study, finished: Iterable[TrialFolder]) -> dict[Trial, dict[str, Any]]:
    """trial.json by (arm, seed). Raises ParibusError where one is damaged."""
    records: dict[Trial, dict[str, Any]] = {}
    first: dict[str, Any] = {}  # of the study, by key
    of_arm: dict[tuple[str, str], Any] = {}
    form = records_of(study).trial_form
    for folder in finished:
        record = folder.read_json("trial.json")
        require(folder.path / "trial.json", record, {"trial.json": form})
        for key, value in record.items():
            if not isinstance(value, dict | list):
                continue
            for known in (first.setdefault(key, value), of_arm.get((folder.arm, key))):
                if known == value:
                    record[key] = known
                    break
            else:
                of_arm[folder.arm, key] = value
        records[folder.arm, folder.seed] = record
    return records


def distinct(records: Mapping[Trial, Mapping[str, Any]], key: str) -> Iterator[tuple[Trial, Any]]:
    """Yield the values that records of `read_trials` have of `key`, each once, with its first
    trial."""
    seen: set[int] = set()
    for trial, record in records.items():
        value = record.get(key, {})
        if id(value) not in seen:
            seen.add(id(value))
            yield trial, value


def require_own(
    study: Study, finished: Iterable[TrialFolder], records: Mapping[Trial, dict[str, Any]]
) -> None:
    """Raise ParibusError where a trial's records are those of another arm, seed or setting, or
    where trials of one arm were trained with different custom code."""
    dumped = {arm: study.setting(arm).model_dump(mode="json") for arm in study.arms}
    kept = {arm: list(getattr(study.setting(arm), "kept_steps", ())) for arm in study.arms}
    code: dict[str, tuple[TrialFolder, dict[str, Sources]]] = {}
    for folder in finished:
        trial = records[folder.arm, folder.seed]
        expected = {"arm": folder.arm, "seed": folder.seed, "setting": dumped[folder.arm]}
        for name, value in expected.items():
            if trial[name] != value:
                raise folder.error(f"its records are of another {name}")
        if folder.sealed_steps != kept[folder.arm]:
            raise folder.error("it has weights of other steps than training.keep names")
        first, sources = code.setdefault(folder.arm, (folder, trial["own_modules"]))
        if changed := changed_sources(sources, trial["own_modules"]):
            names = ", ".join(sorted(changed))
            raise folder.error(f"it was trained with another version of {names} than {first.label}")


def require_choice(study: Study, folder: Path, record: dict[str, Any]) -> None:
    """Raise ParibusError where a study's arms have other values than tuning.json, `record`, says.

    A study that is not tuned yet has chosen nothing.
    """
    stated = study.tuning.chosen if study.tuning else {}
    sealed = {arm: chosen["values"] for arm, chosen in record.get("chosen", {}).items()}
    if stated and stated != sealed:
        raise ParibusError(
            f"{folder}: study.json has other values for its arms than tuning.json chose; restore "
            "it",
            code="changed",
        )


COLUMNS = ["task", "item", "correct"]


@dataclass(frozen=True)
class Answers:
    """The answers of one trial to one task.

    Attributes:
        right: [I] of each question, in the order in which they were first asked, the share of the
            numbers of shots at which it was answered right.
        asked: how many answers there are, every number of shots counted.
    """

    right: np.ndarray
    asked: int


def read_answers(folder: TrialFolder) -> dict[str, Answers]:
    """Return the answers of a trial by task, in the order of its record. Raises ParibusError."""
    table = folder.read_columns("items.parquet", COLUMNS)
    tasks = table["task"].combine_chunks().dictionary_encode()
    codes, words = tasks.indices.to_numpy(), tasks.dictionary.to_pylist()
    items = table["item"].to_numpy()
    correct = table["correct"].to_numpy(zero_copy_only=False).astype(np.float64)
    by_code = {}
    for code, word in enumerate(words):
        rows = codes == code
        _, first, place = np.unique(items[rows], return_index=True, return_inverse=True)
        right = np.bincount(place, correct[rows]) / np.bincount(place)
        by_code[word] = Answers(right[np.argsort(first)], int(rows.sum()))
    return by_code
