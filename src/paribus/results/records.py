"""JSON records of a results folder, one model for each file.

A seal says that a record is the one that was written; some files have none (registration.json,
trial.json ...), and may have been edited, cut short or put there by somebody else. `require` holds
a parsed file against the model of its name: readers may then rely on every key that a model
states. Files that only one trainer writes are in the `RecordFormat` of that trainer. Keys that
none states are left to whoever compares them (`paribus.verification`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from paribus.errors import ParibusError

Table = dict[str, Any]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0)]


class Record(BaseModel):
    """A record: of JSON types as they are, so that true is no number and "3" neither."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False)


class Repeated(Record):
    """A trial that is trained again: its seed, and for how many steps."""

    seed: int
    steps: int


class OwnRule(Record):
    """The user's own decision rule: digests of its sources, and what it decides."""

    sources: Table
    rule: Table


class StagesRecord(Record):
    """Two stages: seeds of each, and weights of the inverse-normal method."""

    seeds: list[int]
    weights: list[Number]


class Registration(Record):
    """registration.json, and those that it superseded."""

    study_digest: str
    seeds: list[int]
    number: int
    own_modules: dict[str, Table]
    own_probes: Table
    own_measures: Table
    own_tasks: Table
    own_rule: OwnRule
    metrics: dict[str, Table]
    data: dict[str, Table]
    sources: dict[str, str]
    repeated: dict[str, Repeated]
    # What earlier ones, or the first of a study, do not say.
    seeds_added_after_results: list[int] = []
    results_when_registered: list[str] = []
    tasks: Table = {}
    looks: Table = {}
    stages: StagesRecord | Annotated[dict[str, Any], Field(max_length=0)] = {}
    supersedes: str = ""
    code: str = ""
    packages: dict[str, str] = {}
    trainer: Table = {}
    retries: Count | None = None
    files: dict[str, str] = {}  # of other programs' runs, those that were there already


class LookEndpoint(Record):
    """An endpoint at a look."""

    pairs: int


class LookContrast(Record):
    """A contrast at a look, and what was decided on it."""

    decision: str
    look: int
    endpoints: dict[str, LookEndpoint]


class Look(Record):
    """A look that was taken."""

    look: int
    seeds: int
    contrasts: dict[str, LookContrast]


class Looks(Record):
    """looks.json."""

    looks: list[Look]


class Opened(Record):
    """test_part.json: when and for what the sealed test part was read."""

    purpose: str
    digest: str
    opened: str


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
        given: the files, folders and patterns that were named, as such paths.
        unread: the files that were refused or skipped, as such paths.
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
    given: list[str] = []
    unread: list[str] = []


class Tested(Record):
    """test.json: digests of what every trial gave on the test part, by trial and file."""

    trials: dict[str, dict[str, str]]


class Manifest(RootModel[dict[str, str]]):
    """manifest.json: SHA-256 of records by name."""

    model_config = ConfigDict(strict=True)


class AnalysisRecord(Record):
    """analysis.json."""

    contrasts: list[Table]
    controls: list[Table]


class VerdictRecord(Record):
    """verdict.json."""

    verdicts: list[Table]


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
    """timing.json."""

    training_seconds: Positive
    evaluation_seconds: float
    curve_seconds: list[float] = []


class Leakage(Record):
    """What is said of held-out text in training text; empty where nobody looked."""

    in_training: Count
    validation_tokens: Count


class LookedAt(Record):
    """How much of a text was looked at."""

    tokens: Count
    duplicates: Count


class TextRules(Record):
    """By which rules."""

    near_duplicate_jaccard: float
    shingle_characters: Count
    run_tokens: Count


class Nothing(Record):
    """An empty table."""

    model_config = ConfigDict(extra="forbid")


class DescribedText(Record):
    """What is said of one text."""

    token_classes: dict[str, dict[str, Count]] = {}
    duplicates: dict[str, dict[str, Count]] = {}
    leakage: Nothing | Leakage = Nothing()
    looked_at: Nothing | LookedAt = Nothing()
    rules: Nothing | TextRules = Nothing()


class DescribedData(DescribedText):
    """data.json."""

    arms: dict[str, DescribedText] = {}


class RepeatedTrial(Record):
    """What repeated.json says of an arm."""

    seed: int
    steps: int
    trial: str
    differs_at: int | None
    differs: str


class TuningTrial(Record):
    """A tuning trial."""

    arm: str
    candidate: Count
    seed: int
    value: float | None


class Chosen(Record):
    """What was chosen for an arm."""

    candidate: Count
    values: Table


class TuningRecord(Record):
    """tuning.json."""

    select: str
    root: str
    candidates: list[Table]
    trials: list[TuningTrial]
    chosen: dict[str, Chosen]
    caveats: dict[str, list[str]]


class AboutAnswers(Record):
    """about.json of answers to further questions."""

    not_offered: list[list[Any]]
    prompts_sha256: str
    sha256: dict[str, str]


RECORDS: dict[str, type[BaseModel]] = {
    "about.json": AboutAnswers,
    "analysis.json": AnalysisRecord,
    "data.json": DescribedData,
    "evaluation.json": RootModel[dict[str, Number | None]],
    "ledger.json": Reuse,
    "looks.json": Looks,
    "manifest.json": Manifest,
    "registration.json": Registration,
    "runs.json": RunsRecord,
    "repeated.json": RootModel[dict[str, RepeatedTrial]],
    "study.json": Record,
    "test.json": Tested,
    "test_part.json": Opened,
    "timing.json": Timing,
    "trial.json": TrialJson,
    "tuning.json": TuningRecord,
    "verdict.json": VerdictRecord,
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
