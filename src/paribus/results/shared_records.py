"""trial.json of every trial: what trials have in common is in memory once.

Settings, declarations and descriptions of the data are the same in all trials of an arm, and most
of what a record holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paribus.results.expected import require_json
from paribus.results.record_format import records_of
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study, current_setting

Trial = tuple[str, int]


def read_trials(study: Study, finished: Iterable[TrialFolder]) -> dict[Trial, dict[str, Any]]:
    """trial.json by (arm, seed). Raises ParibusError where one is damaged."""
    found: dict[Trial, dict[str, Any]] = {}
    first: dict[str, Any] = {}  # of the study, by key
    of_arm: dict[tuple[str, str], Any] = {}
    today: dict[str, dict[str, Any]] = {}
    form = records_of(study).trial_form
    for folder in finished:
        record = folder.read_json("trial.json")
        require_json(folder.path / "trial.json", record, {"trial.json": form})
        said = json.dumps(record["setting"])
        if said not in today:
            today[said] = current_setting(study, record["setting"])
        record["setting"] = today[said]
        for key, value in record.items():
            if not isinstance(value, dict | list):
                continue
            for known in (first.setdefault(key, value), of_arm.get((folder.arm, key))):
                if known == value:
                    record[key] = known
                    break
            else:
                of_arm[folder.arm, key] = value
        found[folder.arm, folder.seed] = record
    return found


def distinct(records: Mapping[Trial, Mapping[str, Any]], key: str) -> Iterator[tuple[Trial, Any]]:
    """Yield the values that records of `read_trials` have of `key`, each once, with its first
    trial."""
    seen: set[int] = set()
    for trial, record in records.items():
        value = record.get(key, {})
        if id(value) not in seen:
            seen.add(id(value))
            yield trial, value
