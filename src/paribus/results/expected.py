"""What every file of a results folder must hold, checked wherever one is read.

A seal says that a record is the one that was written; some files have none (registration.json,
timing.json, throughput.parquet ...), and may have been edited, cut short or put there by somebody
else. What is read has the shape that its reader relies on, or is refused in one line. Files that
only one trainer writes are in the `RecordFormat` of that trainer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from paribus.errors import ParibusError

Table = dict[str, Any]
Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of things, as a 64-bit integer holds it."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0)]


class Form(BaseModel):
    """What a file must hold at least, whatever else it holds."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class Anything(Form):
    """A table."""


class AnalysisForm(Form):
    """analysis.json."""

    contrasts: list[Table]
    controls: list[Table]


class VerdictForm(Form):
    """verdict.json."""

    verdicts: list[Table]


class KeptForm(Form):
    """kept.json."""

    left_out: list[str] = []
    root: str = ""


class RepeatedForm(Form):
    """What registration.json says of trials that are trained again."""

    seed: int
    steps: int


class RuleForm(Form):
    """What it says of the user's own rule."""

    sources: Table
    rule: Table


class StagesForm(Form):
    """What it says of stages; empty where there is one."""

    seeds: list[int] = []
    weights: list[float] = []


class RegistrationForm(Form):
    """registration.json."""

    study_digest: str
    seeds: list[int]
    number: int
    own_modules: dict[str, Table]
    own_probes: Table
    own_measures: Table
    own_tasks: Table
    own_rule: RuleForm
    metrics: dict[str, Table]
    data: dict[str, Table]
    sources: dict[str, str]
    repeated: dict[str, RepeatedForm]
    seeds_added_after_results: list[int] = []
    results_when_registered: list[str] = []
    tasks: Table = {}
    looks: Table = {}
    stages: StagesForm = StagesForm()
    supersedes: str = ""
    code: str = ""
    packages: dict[str, str] = {}
    trainer: Table = {}


class TrialForm(Form):
    """trial.json, of any trainer."""

    arm: str
    seed: int
    setting: Table
    metrics: dict[str, Table]
    drawings: list[Table]
    own_modules: Table
    diverged_at: int | None


class TimingForm(Form):
    """timing.json."""

    training_seconds: Positive
    evaluation_seconds: float
    curve_seconds: list[float] = []


class LiveForm(Form):
    """live.json."""

    tokens: float
    tokens_done: float
    tokens_per_second: float
    seconds_left: float | None
    doing: str
    written_at: float
    running: Table


class LeakageForm(Form):
    """What is said of held-out text in training text; empty where nobody looked."""

    in_training: Count
    validation_tokens: Count


class LookedAtForm(Form):
    """How much of a text was looked at."""

    tokens: Count
    duplicates: Count


class RulesForm(Form):
    """By which rules."""

    near_duplicate_jaccard: float
    shingle_characters: Count
    run_tokens: Count


class _None(Form):
    model_config = ConfigDict(extra="forbid")


class TextForm(Form):
    """What is said of one text."""

    token_classes: dict[str, dict[str, Count]] = {}
    duplicates: dict[str, dict[str, Count]] = {}
    leakage: _None | LeakageForm = _None()
    looked_at: _None | LookedAtForm = _None()
    rules: _None | RulesForm = _None()


class DataForm(TextForm):
    """data.json."""

    arms: dict[str, TextForm] = {}


class OpenedForm(Form):
    """test_part.json."""

    purpose: str
    digest: str
    opened: str


class TestForm(Form):
    """test.json."""

    trials: dict[str, dict[str, str]]


class LookEndpointForm(Form):
    """What a look saw of an endpoint."""

    pairs: int


class LookContrastForm(Form):
    """What it decided of a contrast."""

    decision: str
    look: int
    endpoints: dict[str, LookEndpointForm]


class LookForm(Form):
    """One look."""

    look: int
    seeds: int
    contrasts: dict[str, LookContrastForm]


class LooksForm(Form):
    """looks.json."""

    looks: list[LookForm]


class RepeatForm(Form):
    """What repeated.json says of an arm."""

    seed: int
    steps: int
    trial: str
    differs_at: int | None
    differs: str


class RoundForm(Form):
    """A round of tuning."""

    folder: str
    candidates: Count
    root: str


class TuningTrialForm(Form):
    """A tuning trial."""

    arm: str
    candidate: Count
    seed: int
    value: float | None


class ChosenForm(Form):
    """What was chosen for an arm."""

    candidate: Count
    values: Table


class TuningForm(Form):
    """tuning.json."""

    select: str
    rounds: list[RoundForm]
    candidates: list[Table]
    trials: list[TuningTrialForm]
    chosen: dict[str, ChosenForm]
    caveats: dict[str, list[str]]


class AboutForm(Form):
    """about.json of answers to further questions."""

    not_offered: list[list[Any]]
    prompts_sha256: str
    sha256: dict[str, str]


# By file name; a file that is not here or in a trainer's format is read as it is.
FORMS: dict[str, type[BaseModel]] = {
    "study.json": Anything,
    "analysis.json": AnalysisForm,
    "verdict.json": VerdictForm,
    "kept.json": KeptForm,
    "registration.json": RegistrationForm,
    "trial.json": TrialForm,
    "evaluation.json": RootModel[dict[str, Number | None]],
    "manifest.json": Anything,
    "timing.json": TimingForm,
    "live.json": LiveForm,
    "data.json": DataForm,
    "test_part.json": OpenedForm,
    "test.json": TestForm,
    "looks.json": LooksForm,
    "repeated.json": RootModel[dict[str, RepeatForm]],
    "tuning.json": TuningForm,
    "about.json": AboutForm,
}

# Columns that a reader relies on, by file name.
COLUMNS: dict[str, tuple[str, ...]] = {
    "steps.parquet": ("step", "train_loss"),
    "probes.parquet": ("step",),
    "curve.parquet": ("step", "loss_sum_nats", "predicted"),
    "evaluation.parquet": ("measure", "part", "value", "total", "count", "unit"),
    "blocks.parquet": ("loss_sum_nats", "brier_sum", "correct", "predicted", "characters"),
    "item_scores.parquet": ("item", "count"),
    "tasks.parquet": ("task", "shots", "items", "correct", "accuracy"),
    "items.parquet": ("task", "shots", "item", "correct"),
    "throughput.parquet": ("arm", "seed", "kind", "tokens", "seconds", "bytes"),
}
# Of these, what files of schema 0 may lack.
LATER_COLUMNS = frozenset({"bytes"})
# Of these, the ones that are words; all others are numbers, or true and false.
WORDS = frozenset({"measure", "part", "unit", "task", "arm", "kind"})
# Numbers that must be there in every row and be greater than zero.
POSITIVE = {"throughput.parquet": ("tokens", "seconds"), "curve.parquet": ("predicted",)}


def require_json(path: Path, value: Any, forms: Mapping[str, type[BaseModel]] = FORMS) -> None:
    """Raise ParibusError where a parsed file of a results folder is not what its name says."""
    # Superseded registrations are numbered, and hold what the one in force does.
    form = forms.get(re.sub(r"^registration-\d+\.json$", "registration.json", path.name))
    if form is None:
        return
    if not isinstance(value, dict):
        raise _refused(path, f"it holds a {_kind(value)} where a table belongs")
    try:
        form.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        at = str(problem["loc"][0])
        if problem["type"] == "missing" and len(problem["loc"]) == 1:
            if path.name == "registration.json":
                raise ParibusError(
                    f"{path} is of a study that was registered by an earlier paribus (it has no "
                    f"'{at}'); read it with that one, or choose another folder with --results"
                ) from None
            raise _refused(path, f"'{at}' is missing") from None
        raise _refused(path, f"'{at}' is {str(value.get(at))[:60]!r}") from None


def require_columns(path: Path, names: list[str]) -> None:
    """Raise ParibusError where a Parquet file lacks a column that its readers rely on."""
    wanted = COLUMNS.get(path.name, ())
    lacking = [name for name in wanted if name not in names and name not in LATER_COLUMNS]
    if lacking:
        raise _refused(path, f"it has no column {', '.join(lacking)}")


def require_values(path: Path, found: pa.Table) -> None:
    """Raise ParibusError where a column that must be positive is not."""
    for name in COLUMNS.get(path.name, ()):
        if name in found.column_names:
            _require_kind(path, name, found[name].type)
    for name in POSITIVE.get(path.name, ()):
        if name not in found.column_names:
            continue
        column = found[name]
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if numeric and not column.null_count:
            values = column.to_numpy()
            if np.all(np.isfinite(values) & (values > 0)):
                continue
        raise _refused(path, f"'{name}' is not a number above zero in every row")


def _require_kind(path: Path, name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    words = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (words if name in WORDS else numbers or pa.types.is_null(kind)):
        raise _refused(path, f"column '{name}' holds {kind}")


def _kind(value: Any) -> str:
    return {list: "list", str: "text", type(None): "null"}.get(type(value), "number")


def _refused(path: Path, why: str) -> ParibusError:
    return ParibusError(
        f"{path} is not what was written there: {why}; restore it, or delete it and run again"
    )
