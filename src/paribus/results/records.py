"""JSON records of a results folder, one model for each file.

A seal says that a record is the one that was written; some files have none (registration.json,
trial.json ...), and may have been edited, cut short or put there by somebody else. `require` holds
a parsed file against the model of its name: readers may then rely on every key that a model
states. Files that only one trainer writes are in the `RecordFormat` of that trainer. Keys that
none states are left to whoever compares them (`paribus.verification`).
"""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, create_model

from paribus.errors import ParibusError
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
from paribus.study.trainer import BUILT_IN

if TYPE_CHECKING:
    from paribus.results.trial_folder import TrialFolder

Table = dict[str, Any]
Trial = tuple[str, int]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0)]


class Record(BaseModel):
    """A record: of JSON types as they are, so that true is not a number and "3" neither."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False)


def form(**keys: Any) -> Any:
    """Return the model of a record that has at least these keys, of these types."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in keys.items()}
    return create_model("table", __base__=Record, **fields)


class Empty(Record):
    """A table without keys."""

    model_config = ConfigDict(extra="forbid")


_Repeated = form(seed=int, steps=int)
_OwnRule = form(sources=Table, rule=Table)
_StagesRecord = form(seeds=list[int], weights=list[Number])


class _Registration(Record):
    study_digest: str
    seeds: list[int]
    number: int
    own_modules: dict[str, Table]
    own_probes: Table
    own_measures: Table
    own_tasks: Table
    own_rule: _OwnRule
    metrics: dict[str, Table]
    data: dict[str, Table]
    sources: dict[str, str]
    repeated: dict[str, _Repeated]
    # What earlier ones, or the first of a study, do not say.
    seeds_added_after_results: list[int] = []
    results_when_registered: list[str] = []
    words: dict[str, str | dict[str, dict[str, str]]] = {}
    tasks: Table = {}
    looks: Table = {}
    stages: Empty | _StagesRecord = Empty()
    supersedes: str = ""
    code: str = ""
    packages: dict[str, str] = {}
    trainer: Table = {}
    retries: Count | None = None
    files: dict[str, str] = {}  # of other programs' runs, those that were there already


_LookEndpoint = form(pairs=int)
_LookContrast = form(decision=str, look=int, endpoints=dict[str, _LookEndpoint])
_Look = form(look=int, seeds=int, contrasts=dict[str, _LookContrast])
_Looks = form(looks=list[_Look])
_Opened = form(purpose=str, digest=str, opened=str)


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


_Tested = form(trials=dict[str, dict[str, str]])


class _Manifest(RootModel[dict[str, str]]):
    model_config = ConfigDict(strict=True)


_AnalysisRecord = form(contrasts=list[Table], controls=list[Table])
_VerdictRecord = form(verdicts=list[Table])


class TrialJson(Record):
    """trial.json, of any trainer."""

    arm: str
    seed: int
    setting: Table
    metrics: dict[str, Table]
    drawings: list[Table]
    own_modules: Table
    diverged_at: int | None


class _Timing(Record):
    training_seconds: Positive
    evaluation_seconds: float
    curve_seconds: list[float] = []


_Leakage = form(in_training=Count, validation_tokens=Count)
_LookedAt = form(tokens=Count, duplicates=Count)
_TextRules = form(near_duplicate_jaccard=float, shingle_characters=Count, run_tokens=Count)


class _DescribedText(Record):
    token_classes: dict[str, dict[str, Count]] = {}
    duplicates: dict[str, dict[str, Count]] = {}
    leakage: Empty | _Leakage = Empty()
    looked_at: Empty | _LookedAt = Empty()
    rules: Empty | _TextRules = Empty()


class _DescribedData(_DescribedText):
    arms: dict[str, _DescribedText] = {}


_RepeatedTrial = form(seed=int, steps=int, trial=str, differs_at=int | None, differs=str)
_TuningTrial = form(arm=str, candidate=Count, seed=int, value=float | None)
_Chosen = form(candidate=Count, values=Table)
_TuningRecord = form(
    select=str,
    root=str,
    candidates=list[Table],
    trials=list[_TuningTrial],
    chosen=dict[str, _Chosen],
    caveats=dict[str, list[str]],
)
_AboutAnswers = form(not_offered=list[list[Any]], prompts_sha256=str)
RECORDS: dict[str, type[BaseModel]] = {
    "about.json": _AboutAnswers,
    "analysis.json": _AnalysisRecord,
    "data.json": _DescribedData,
    "evaluation.json": RootModel[dict[str, Number | None]],
    "ledger.json": Reuse,
    "looks.json": _Looks,
    "manifest.json": _Manifest,
    "registration.json": _Registration,
    "runs.json": RunsRecord,
    "repeated.json": RootModel[dict[str, _RepeatedTrial]],
    "study.json": Record,
    "test.json": _Tested,
    "test_part.json": _Opened,
    "timing.json": _Timing,
    "trial.json": TrialJson,
    "tuning.json": _TuningRecord,
    "verdict.json": _VerdictRecord,
}
Model = TypeVar("Model", bound=BaseModel)


def require(path: Path, value: Any, records: Mapping[str, type[BaseModel]] = RECORDS) -> None:
    """Raise ParibusError where a parsed file has a model in `records` and is not what that says."""
    # Superseded registrations are numbered, and hold what the one in force does.
    model = records.get(re.sub(r"^registration-\d+\.json$", "registration.json", path.name))
    if model is not None:
        as_model(model, value, path)


def as_model(model: type[Model], value: Any, path: Path) -> Model:
    """Return a parsed file as its model. Raises ParibusError: the file, the key, the rule."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, why = ".".join(map(str, first["loc"])), first["msg"]
    problem = f"'{key}' is {str(first['input'])[:60]!r}" if key else "it is not a table"
    text = f"'{key}' is missing" if first["type"] == "missing" else f"{problem} ({why})"
    raise ParibusError(
        f"{path} was changed or damaged after it was written: {text}; restore it, or delete it and "
        "run again"
    )


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


def distinct(records: Mapping[Trial, Mapping[str, Any]], key: str) -> Iterator[tuple[Trial, Any]]:
    """Yield the values that records of `read_trials` have of `key`, each once, with its first
    trial."""
    seen: set[int] = set()
    for trial, record in records.items():
        value = record.get(key, {})
        if id(value) not in seen:
            seen.add(id(value))
            yield trial, value
