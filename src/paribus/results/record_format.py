"""Which files the trials of a trainer have, and what they must hold.

`RecordFormat` describes the records of any trainer that yields `TrialRecord`s. Built-in trainers
record more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from paribus.ledger import TextPart
from paribus.results.controls import (
    Checks,
    Evidence,
    as_logged,
    evidence,
    not_recorded,
    settings,
)
from paribus.results.records import RECORDS, TrialJson
from paribus.study import Study
from paribus.study.trainer import BUILT_IN

if TYPE_CHECKING:
    from paribus.results.trial_folder import TrialFolder

TRAINER = "trainer"
"""The key of a registration that holds what the trainer declared."""


@dataclass(frozen=True)
class RecordFormat:
    """The records of a trainer that declares its controls.

    Attributes:
        required, possible: files that every finished trial has sealed, and that it may have.
        models: what JSON files of its own must hold, by name.
        trial_form: what trial.json must hold.
        packages: whose versions are registered.
        blocks: the file with sums over items, or blocks of them.
        aligned_by: its column that is equal if two arms have the same items.
        is_timed: whether every finished trial has timing.json, which is not sealed.
        finite: the metric without which a trial has diverged; empty if the trainer declares it.
    """

    required: tuple[str, ...] = ("trial.json", "evaluation.json")
    possible: tuple[str, ...] = ("item_scores.parquet", "steps.parquet", "series.parquet")
    models: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    trial_form: type[BaseModel] = TrialJson
    packages: tuple[str, ...] = ("paribus", "numpy", "scipy", "pyarrow")
    blocks: str = "item_scores.parquet"
    aligned_by: str = "item"
    is_timed: bool = False
    finite: str = ""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return what two trials are compared in."""
        stated = registered.get(TRAINER, {}).get("controls", {})
        pairs = {name: evidence(name, tuple(keys)) for name, keys in stated.items()}
        return Checks({"setting": settings} | pairs)

    def evidence(
        self, folder: TrialFolder, trial: dict[str, Any], data: dict[str, Any]
    ) -> Evidence:
        """Return what the checks look at of a trial; `data` is data.json."""
        return Evidence(folder.arm, folder.seed, trial)

    def must_be_finite(self, registered: Mapping[str, Any]) -> str:
        """Return the metric without which a trial has diverged; empty for none."""
        return self.finite or str(registered.get(TRAINER, {}).get("must_be_finite", ""))

    def code(self) -> str:
        """Return the digest of the source that trains; empty if it is not ours."""
        return ""

    def held_out_parts(self, study: Study, registered: Mapping[str, Any]) -> list[TextPart]:
        """Return the texts that are held out, as far as they are declared."""
        stated = registered.get(TRAINER, {}).get("test")
        return [TextPart(role="test", **stated["text"])] if stated else []

    def forbids_reuse(self, study: Study, registered: Mapping[str, Any]) -> bool:
        """Return whether a test text that another study opened is refused."""
        return registered.get(TRAINER, {}).get("test", {}).get("reuse") == "forbid"

    def registered(self, study: Study) -> dict[str, Any]:
        """Return what is registered besides the study's digest."""
        return {}

    def repeated_steps(self, setting: Any) -> int:
        """Return how many first steps of a trial are trained again."""
        return 0


class RunsRecords(RecordFormat):
    """The records of finished runs of other programs."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return what would have to be equal; only the budget can be read from logs."""
        return Checks({"data": not_recorded, "initial weights": not_recorded, "budget": as_logged})


DECLARED = RecordFormat()
RUNS_RECORDS = RunsRecords()


def records_of(study: Study) -> RecordFormat:
    """Return the format of the records of a study's trainer."""
    built_in = BUILT_IN.get(study.trainer)
    return resolve_name(built_in.records) if built_in else DECLARED


@cache
def known_records() -> dict[str, type[BaseModel]]:
    """Return what JSON files must hold, by name, for every built-in trainer."""
    formats = [resolve_name(built_in.records) for built_in in BUILT_IN.values()]
    return RECORDS | {name: model for form in formats for name, model in form.models.items()}


def parameters(trial: Mapping[str, Any]) -> float | None:
    """Return how many parameters a trial trained; None if that is not recorded."""
    return trial.get("parameters")


def training_flops(trial: Mapping[str, Any]) -> float | None:
    """Return the FLOPs of a trial's training; None if they were not counted."""
    per_token = trial.get("flops", {}).get("per_token")
    return None if per_token is None else per_token * trial["tokens"]
