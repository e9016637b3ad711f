"""JSON records of a results folder, and what differs between the records of trainers.

A seal says that a record is the one that was written. A model here checks a record that has no
seal, or that is passed on as an object; readers may then rely on every key that the model states.
"""

# pyright: reportInvalidTypeForm=false
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
    """A record: of JSON types as they are, so that true is not a number and "3" neither."""

    model_config = ConfigDict(
        strict=True, extra="allow", frozen=True, allow_inf_nan=False, defer_build=True
    )


def form(**keys: Any) -> Any:
    """Return the model of a record that has at least these keys, of these types."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in keys.items()}
    return create_model("table", __base__=Record, **fields)


class Empty(Record):
    """A table without keys."""

    model_config = ConfigDict(extra="forbid")


class Registration(Record):
    """registration.json: what its readers rely on."""

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
    """ledger.json: what the ledger said of the test text when it was opened.

    Attributes:
        recorded: whether there was a ledger that could be written; `why` there was none.
        opened_for: the how-manieth study it is whose test text this is.
        validated: other studies that had validated on it alone.
        first: which of all these was the first; None where this one is.
        studies: how many of them make primary tests on it, this one included.
        tests: how many tests these are.
    """

    recorded: bool
    why: str = ""
    opened_for: Count = 1
    validated: Count = 0
    first: FirstUse | None = None
    studies: Count = 1
    tests: Count = 0


class RunsRecord(Record):
    """runs.json: what became of the files that other programs left of their runs.

    Attributes:
        exploratory: why nothing was registered before the runs were there; empty where it was.
        files: files that were looked at.
        excluded: by arm, how many runs crashed and were left out.
        refused, skipped: files that could not be read, and that are of no known form, and why.
        copies: runs that were counted once though they are told twice.
        copy_of: one of them, and what it is a copy of.
        notes: what else a reader must know: pairs of a code and a sentence.
        sha256: of the files that were read, by path from the results folder.
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
    """trial.json, of any trainer."""

    arm: str
    seed: int
    setting: Table
    metrics: dict[str, Table]
    drawings: list[Table]
    own_modules: Table
    diverged_at: int | None


class Timing(Record):
    """timing.json, which is not sealed: a trial that is trained again takes another time."""

    training_seconds: Positive
    evaluation_seconds: float
    curve_seconds: list[float] = []


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
"""The key of a registration that holds what the trainer declared."""


@dataclass(frozen=True)
class RecordFormat:
    """The records of a trainer that declares its controls.

    Attributes:
        required, possible: files that every finished trial has sealed, and that it may have.
        trial_form: what trial.json must hold.
        packages: whose versions are registered.
        blocks: the file with sums over items, or blocks of them.
        aligned_by: its column that is equal if two arms have the same items.
        is_timed: whether every finished trial has timing.json, which is not sealed.
        finite: the metric without which a trial has diverged; empty if the trainer declares it.
    """

    required: tuple[str, ...] = ("trial.json", "evaluation.json")
    possible: tuple[str, ...] = ("item_scores.parquet", "steps.parquet", "series.parquet")
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
    is_built_in = study.trainer in PROVIDED["records"]
    return provided("records", study.trainer) if is_built_in else DECLARED


def parameters(trial: Mapping[str, Any]) -> float | None:
    """Return how many parameters a trial trained; None if that is not recorded."""
    return trial.get("parameters")


def training_flops(trial: Mapping[str, Any]) -> float | None:
    """Return the FLOPs of a trial's training; None if they were not counted."""
    per_token = trial.get("flops", {}).get("per_token")
    return None if per_token is None else per_token * trial["tokens"]


def distinct(records: Mapping[Trial, Mapping[str, Any]], key: str) -> Iterator[tuple[Trial, Any]]:
    """Yield the values that trial.json files have of `key`, each once, with its first trial."""
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
