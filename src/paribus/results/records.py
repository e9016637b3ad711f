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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, create_model

from paribus.errors import ParibusError

Table = dict[str, Any]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0)]


class Record(BaseModel):
    """A record: of JSON types as they are, so that true is no number and "3" neither."""

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
    problem = f"'{key}' is {str(first['input'])[:60]!r}" if key else "it is no table"
    text = f"'{key}' is missing" if first["type"] == "missing" else f"{problem} ({why})"
    raise ParibusError(
        f"{path} is not what was written there: {text}; restore it, or delete it and run again"
    )
