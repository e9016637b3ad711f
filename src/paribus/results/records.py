"""Pydantic models for JSON records, and the record formats of trainers.

The digests in manifests only show that records are unchanged. The models also validate the content
of records, so that code can rely on every key of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from paribus.declared import PROVIDED, provided
from paribus.digests import canonical_json
from paribus.ledger import TextPart
from paribus.results.controls import (
    Checks,
    Evidence,
    as_logged,
    evidence,
    not_recorded,
    settings,
)
from paribus.study import Study

if TYPE_CHECKING:
    from paribus.results.trial_folder import TrialFolder

Table = dict[str, Any]
Trial = tuple[str, int]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0)]


class Record(BaseModel):
    """Base class for JSON records, with strict types and unknown keys allowed."""

    model_config = ConfigDict(
        strict=True, extra="allow", frozen=True, allow_inf_nan=False, defer_build=True
    )


def form(**keys: Any) -> Any:
    """Create a `Record` subclass that requires the given keys with the given types."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in keys.items()}
    return create_model("table", __base__=Record, **fields)


class Empty(Record):
    """Model of an empty JSON object."""

    model_config = ConfigDict(extra="forbid")


class Registration(Record):
    """Model of registration.json, with the keys that other code relies on."""

    study_digest: str
    seeds: list[int]
    number: int
    own_modules: dict[str, Table]
    own_probes: Table
    own_measures: Table
    own_tasks: Table
    own_rule: Table
    metrics: dict[str, Table]
    data: dict[str, Table]
    sources: dict[str, str]
    repeated: dict[str, Table]
    words: Table
    tasks: Table = {}
    stages: Table = {}
    trainer: Table = {}


class FirstUse(Record):
    """Name of the first study that used a text, and the time of that use."""

    study: str
    time: str


class Reuse(Record):
    """Model of ledger.json: earlier uses of the test text, according to the ledger.

    Attributes:
        recorded: whether this use was recorded in a ledger.
        why: reason why this use was not recorded, or "" if it was.
        opened_for: 1-based rank of this study among those that used the text as test text.
        validated: number of other studies that used the text only as validation text.
        first: the first study that used the text; None if it is this study.
        studies: number of studies with primary tests on the text, including this study.
        tests: total number of primary tests in these studies.
    """

    recorded: bool
    why: str = ""
    opened_for: Count = 1
    validated: Count = 0
    first: FirstUse | None = None
    studies: Count = 1
    tests: Count = 0


class RunsRecord(Record):
    """Model of runs.json: files of finished runs by other programs, and how they were used.

    Attributes:
        exploratory: why the study was not registered before the runs existed, or "" if it was.
        files: number of files examined.
        excluded: number of excluded crashed runs, keyed by arm.
        refused, skipped: (file, reason) for files that could not be read, and for files of
            unknown format.
        copies: number of duplicate runs, which were ignored.
        copy_of: example of a duplicate run and the run that it duplicates.
        notes: further warnings for reports, as (code, sentence).
        sha256: digests of the files read, keyed by path relative to the results folder.
    """

    exploratory: str = ""
    files: Count = 0
    excluded: dict[str, Count] = {}
    refused: list[list[str]] = []
    skipped: list[list[str]] = []
    copies: Count = 0
    copy_of: list[str] = []
    notes: list[list[str]] = []
    sha256: dict[str, str] = {}


class TrialJson(Record):
    """Model of trial.json, with the keys that all trainers write."""

    arm: str
    seed: int
    setting: Table
    metrics: dict[str, Table]
    drawings: list[Table]
    own_modules: Table
    diverged_at: int | None


class Timing(Record):
    """Model of timing.json, which has no digest because times are not reproducible."""

    training_seconds: Positive


TRAINER = "trainer"
"""Key of the trainer's declaration in registration.json."""


@dataclass(frozen=True)
class RecordFormat:
    """Record format of a trainer, by default one that registers a `Declaration`.

    Attributes:
        required: names of the files that every finished trial must have.
        trial_form: model of trial.json.
        packages: packages whose versions are registered.
        blocks: name of the file with per-item scores or per-block sums.
        aligned_by: column of `blocks` that is equal in two arms with the same items.
        finite: metric that is not finite if a trial has diverged; "" to use the metric that the
            trainer declares.
    """

    required: tuple[str, ...] = ("trial.json", "evaluation.json")
    trial_form: type[BaseModel] = TrialJson
    packages: tuple[str, ...] = ("paribus", "numpy", "scipy", "pyarrow")
    blocks: str = "item_scores.parquet"
    aligned_by: str = "item"
    finite: str = ""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return the check functions for the controls that the trainer declares."""
        stated = registered.get(TRAINER, {}).get("controls", {})
        pairs = {name: evidence(name, tuple(keys)) for name, keys in stated.items()}
        return Checks(pairs | {"setting": settings})

    def evidence(
        self,
        folder: TrialFolder,
        trial: dict[str, Any],
        data: dict[str, Any],
        opened: dict[str, str],
    ) -> Evidence:
        """Return the records of a trial that the check functions compare.

        Args:
            folder: folder of the trial.
            trial: content of trial.json.
            data: content of data.json.
            opened: content of test_part.json.
        """
        return Evidence(folder.arm, folder.seed, trial)

    def must_be_finite(self, registered: Mapping[str, Any]) -> str:
        """Return the metric that is not finite if a trial has diverged, or "" if undefined."""
        return self.finite or str(registered.get(TRAINER, {}).get("must_be_finite", ""))

    def code(self) -> str:
        """Return the digest of the training code, or "" if the code is external."""
        return ""

    def held_out_parts(self, study: Study, registered: Mapping[str, Any]) -> list[TextPart]:
        """Return the held-out texts declared by the study or its trainer."""
        stated = registered.get(TRAINER, {}).get("test")
        return [TextPart(role="test", **stated)] if stated else []

    def repeated_steps(self, setting: Any) -> int:
        """Return the number of initial training steps to repeat when checking repeatability."""
        return 0


class RunsRecords(RecordFormat):
    """Record format for finished runs of other programs."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return the check functions for logged runs, of which only the budget is recorded."""
        return Checks({"data": not_recorded, "initial weights": not_recorded, "budget": as_logged})


DECLARED = RecordFormat()
RUNS_RECORDS = RunsRecords()


def records_of(study: Study) -> RecordFormat:
    """Return the record format of a study's trainer."""
    is_built_in = study.trainer in PROVIDED["records"]
    return provided("records", study.trainer) if is_built_in else DECLARED


def training_flops(trial: Mapping[str, Any]) -> float | None:
    """Return the total training FLOPs of a trial, or None if they were not counted."""
    per_token = trial.get("flops", {}).get("per_token")
    stated: float | None = trial.get("training_flops")  # by a finished run
    return stated if per_token is None else per_token * trial["tokens"]


def distinct(records: Mapping[Trial, Mapping[str, Any]], key: str) -> Iterator[tuple[Trial, Any]]:
    """Yield (first trial, value) for each distinct value of `key` in trial.json."""
    seen: set[str] = set()
    for trial, record in records.items():
        value = record.get(key, {})
        if (text := canonical_json(value)) not in seen:
            seen.add(text)
            yield trial, value
