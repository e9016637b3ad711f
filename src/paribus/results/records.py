"""JSON records of a results folder, and the record formats of different trainers.

A seal shows that a record has not changed since it was written. The models here validate records
that have no seal or are passed on as objects, so that readers can rely on every key of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

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
    """Base class of JSON records. Types are strict: neither `true` nor "3" is a number."""

    model_config = ConfigDict(
        strict=True, extra="allow", frozen=True, allow_inf_nan=False, defer_build=True
    )


def form(**keys: Any) -> Any:
    """Create a record model that requires the given keys with the given types."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in keys.items()}
    return create_model("table", __base__=Record, **fields)


class Empty(Record):
    """A table that must be empty."""

    model_config = ConfigDict(extra="forbid")


class Registration(Record):
    """registration.json: the keys that readers rely on."""

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
    """The study that opened a text first, and when."""

    study: str
    time: str


class Reuse(Record):
    """ledger.json: the ledger's record of the test text when it was opened.

    Attributes:
        recorded: whether the use was recorded in a ledger; if not, `why` says why.
        opened_for: rank of this study among those that opened the text as a test text, from 1.
        validated: number of other studies that had only validated on it.
        first: the first study of all these; None if it is this one.
        studies: number of studies with primary tests on it, including this one.
        tests: number of their primary tests.
    """

    recorded: bool
    why: str = ""
    opened_for: Count = 1
    validated: Count = 0
    first: FirstUse | None = None
    studies: Count = 1
    tests: Count = 0


class RunsRecord(Record):
    """runs.json: the files of finished runs by other programs, and how each was used.

    Attributes:
        exploratory: why the study was not registered before the runs existed, or "" if it was.
        files: number of files examined.
        excluded: {arm: number of crashed runs that were excluded}.
        refused, skipped: files that could not be read, and files of unknown format, with
            reasons.
        copies: number of duplicate runs, which were counted once.
        copy_of: an example: a duplicate, and the run that it duplicates.
        notes: further cautions for readers, as (code, sentence).
        sha256: digests of the files read, by path relative to the results folder.
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
    """trial.json: the keys that all trainers write."""

    arm: str
    seed: int
    setting: Table
    metrics: dict[str, Table]
    drawings: list[Table]
    own_modules: Table
    diverged_at: int | None


class Timing(Record):
    """timing.json. It is not sealed, because times differ if a trial is trained again."""

    training_seconds: Positive
    evaluation_seconds: float


# By file, the models that docs/reference/records.md is written from.
RECORDS: dict[str, type[BaseModel]] = {
    "ledger.json": Reuse,
    "manifest.json": RootModel[dict[str, str]],
    "registration.json": Registration,
    "runs.json": RunsRecord,
    "timing.json": Timing,
    "trial.json": TrialJson,
}

TRAINER = "trainer"
"""The key of a registration that holds the trainer's declaration."""


@dataclass(frozen=True)
class RecordFormat:
    """Format of a trainer's records. The base class is for trainers that declare their controls.

    Attributes:
        required: sealed files that every finished trial has.
        trial_form: model of trial.json.
        packages: packages whose versions are registered.
        blocks: file with the scores of items, or with sums over blocks of them.
        aligned_by: column of `blocks` that is equal in two arms with the same items.
        finite: metric whose non-finite value marks a trial as diverged; "" if the trainer declares
            it.
    """

    required: tuple[str, ...] = ("trial.json", "evaluation.json")
    trial_form: type[BaseModel] = TrialJson
    packages: tuple[str, ...] = ("paribus", "numpy", "scipy", "pyarrow")
    blocks: str = "item_scores.parquet"
    aligned_by: str = "item"
    finite: str = ""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return the checks that compare two trials."""
        stated = registered.get(TRAINER, {}).get("controls", {})
        pairs = {name: evidence(name, tuple(keys)) for name, keys in stated.items()}
        return Checks({"setting": settings} | pairs)

    def evidence(
        self,
        folder: TrialFolder,
        trial: dict[str, Any],
        data: dict[str, Any],
        opened: dict[str, str],
    ) -> Evidence:
        """Return the records of a trial that the checks use.

        Args:
            folder: folder of the trial.
            trial: content of trial.json.
            data: content of data.json.
            opened: content of test_part.json.
        """
        return Evidence(folder.arm, folder.seed, trial)

    def must_be_finite(self, registered: Mapping[str, Any]) -> str:
        """Return the metric whose non-finite value marks a trial as diverged, or "" if none."""
        return self.finite or str(registered.get(TRAINER, {}).get("must_be_finite", ""))

    def code(self) -> str:
        """Return the digest of the training code, or "" if the code is not part of paribus."""
        return ""

    def held_out_parts(self, study: Study, registered: Mapping[str, Any]) -> list[TextPart]:
        """Return the held-out texts that the study or its trainer declares."""
        stated = registered.get(TRAINER, {}).get("test")
        return [TextPart(role="test", **stated)] if stated else []

    def repeated_steps(self, setting: Any) -> int:
        """Return how many first steps of a trial are trained again to check repeatability."""
        return 0


class RunsRecords(RecordFormat):
    """Format of the records of finished runs by other programs."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return the checks of finished runs, whose logs can only show the budget."""
        return Checks({"data": not_recorded, "initial weights": not_recorded, "budget": as_logged})


DECLARED = RecordFormat()
RUNS_RECORDS = RunsRecords()


def records_of(study: Study) -> RecordFormat:
    """Return the record format of a study's trainer."""
    is_built_in = study.trainer in PROVIDED["records"]
    return provided("records", study.trainer) if is_built_in else DECLARED


def training_flops(trial: Mapping[str, Any]) -> float | None:
    """Return the FLOPs of a trial's training, or None if they were not counted."""
    per_token = trial.get("flops", {}).get("per_token")
    stated: float | None = trial.get("training_flops")  # by a finished run
    return stated if per_token is None else per_token * trial["tokens"]


def distinct(records: Mapping[Trial, Mapping[str, Any]], key: str) -> Iterator[tuple[Trial, Any]]:
    """Yield (first trial that has it, value) for each distinct value of `key` in trial.json."""
    seen: set[str] = set()
    last: Any = None  # mostly all are equal
    for trial, record in records.items():
        value = record.get(key, {})
        if value == last:
            continue
        last = value
        if (text := canonical_json(value)) not in seen:
            seen.add(text)
            yield trial, value
