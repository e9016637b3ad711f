"""The trainer protocol: a trainer turns (arm, seed) into records and declares what it measures.

A study names its trainer (`trainer = "stacked"`, the built-in engine, by default). A trainer
declares what it measures and holds equal (`Declaration`) and yields a `TrialRecord` for each trial.
A `StudyFormat` reads its sections of a study file, and gives the analysis the facts that it
needs as data (`StudyFacts`, `ArmFacts`). Reading records runs no custom code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as validated

from paribus.declared import PROVIDED, provided
from paribus.errors import ParibusError, nearest
from paribus.metric import Metric
from paribus.study.base import Part, TrialSetting

if TYPE_CHECKING:
    from paribus.study.study import Study

STACKED, RUNS, COMMAND = "stacked", "runs", "command"


Trial = tuple[str, int]
"""(arm, seed)."""


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Place = Annotated[int, Field(ge=0, lt=2**63)]


@validated(frozen=True, config=ConfigDict(defer_build=True))
class TestText:
    """The test text of a trainer's scores, identified by its digest as in the ledger.

    Attributes:
        digest: SHA-256 of the text.
        corpus: SHA-256 of the text that it was cut from; empty if unknown.
        start, stop: its position in that text, in bytes; a stop of None is the end.
        reuse: as in `data.test_reuse`.
    """

    __test__ = False  # nothing for pytest, whatever its name

    digest: Sha256
    corpus: Literal[""] | Sha256 = ""
    start: Place | None = None
    stop: Place | None = None
    reuse: Literal["declare", "forbid"] = "declare"


@validated(frozen=True, config=ConfigDict(defer_build=True))
class Declaration:
    """Metrics and controls of a trainer, registered before its first trial.

    Attributes:
        metrics: metrics that its trials score.
        controls: names of the controls, which must be equal in both trials of a pair; each with
            the prefixes of study keys by which an arm declares a difference.
        by_item: metrics that are means over items, for which every trial records each item's
            score.
        must_be_finite: the metric without which a trial has diverged; empty for none.
        test: the text on which scores are measured; None if it is not declared.
        about: further data to register, such as a program's commit.
    """

    metrics: tuple[Metric, ...]
    controls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_item: frozenset[str] = frozenset()
    must_be_finite: str = ""
    test: TestText | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialRecord:
    """Results of one trial.

    Attributes:
        scores: value by metric; a missing metric was not measured.
        items: by metric, the score of each item, in the same order in all trials and of equal
            weight.
        losses: training loss of each step, in which divergence and spikes are detected; may be
            empty.
        controls: evidence by control; it holds if values are equal. A missing control is not
            proven.
        diverged_at: the first step, from 0, that was not finite; None if all were.
        seconds: training time.
        steps: the step of each entry of `losses`, if not 1, 2, 3 and so on.
        curves: by metric, its values along training as (step, value).
        about: further data for trial.json.
        files: content of further records to seal, by file name; only names that its format
            knows.
    """

    scores: Mapping[str, float]
    items: Mapping[str, Sequence[float]] = field(default_factory=dict)
    losses: Sequence[float] = ()
    controls: Mapping[str, str | int | float] = field(default_factory=dict)
    diverged_at: int | None = None
    seconds: float | None = None
    steps: Sequence[float] = ()
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


class Trainer(Protocol):
    """Protocol of trainers: `declare` is called first, then `run` while trials are missing."""

    def declare(self, study: Study) -> Declaration:
        """Return the metrics and controls of its trials. Raises ParibusError on bad sections."""
        ...

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Train `trials`, and yield the record of each when it is finished.

        `study.setting(arm)` has the settings of a trial.
        """
        ...


class Sections(TrialSetting, Part):
    """Sections of a study file for a custom trainer, unvalidated."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class ArmFacts:
    """Facts of one arm for the analysis.

    Attributes:
        steps, tokens: the length of training; None if unknown.
        learning_rate: None if unknown.
        tokenizer: losses per token can be compared between arms that have the same one.
        not_measured: metrics that these trials cannot measure.
        curve_steps, curve_tokens: the steps of the held-out curve, and the tokens seen by each.
        absent: seeds of the study for which the arm has no trial.
    """

    steps: int | None = None
    tokens: int | None = None
    learning_rate: float | None = None
    tokenizer: str = ""
    not_measured: frozenset[str] = frozenset()
    curve_steps: tuple[int, ...] = ()
    curve_tokens: tuple[int | None, ...] = ()
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class StudyFacts:
    """Facts of a study for the analysis, from the trainer's sections.

    Attributes:
        target: the loss up to which budgets are counted; None without a target.
        seals_test: whether a part of the text is sealed for the verdict.
        texts: files of text and vocabulary that the study names, as absolute paths.
        downloads: whether its text is downloaded.
        resolution: by metric, the smallest difference that it can show, if the study says so.
    """

    target: float | None = None
    seals_test: bool = False
    texts: tuple[Path, ...] = ()
    downloads: bool = False
    resolution: Mapping[str, float] = field(default_factory=dict)


class StudyFormat:
    """Reader of a trainer's sections; this base class is used for custom trainers."""

    loss: str = ""
    """The held-out loss of its trials in nats per token; empty if it has no such metric."""
    defaults: Mapping[str, Any] = MappingProxyType({"inference": {"target": "this item set"}})
    """Defaults of the sections that are not the trainer's, by name; of tables key by key."""
    free: Sequence[tuple[str, ...]] = ()
    """Tables whose keys the user chooses, by their path."""
    left_out: Mapping[str, Any] = MappingProxyType({})
    """Values that a dump leaves out if they are the default, by dotted key."""
    alternatives: Mapping[str, str] = MappingProxyType({})
    """Pairs of keys for the same thing: an override of one replaces the other."""

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table of a study file with its short forms written out."""
        return table

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Return the trainer's sections of a study file, validated; `known` are all other keys."""
        for name, section in table.items():
            if not isinstance(section, dict):
                raise ParibusError(f"unknown key '{name}': {nearest(name, known)}", code="unknown")
        return table

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the dumped sections that arms override."""
        return study.model_dump(include=set(study.model_extra or ()))

    def setting(self, shared: dict[str, Any]) -> Any:
        """Return a trial's settings: `shared`, with an arm's overrides applied, after
        validation."""
        return Sections.model_validate(shared)

    def expand(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides in the order in which they are applied."""
        return list(overrides.items())

    def validate(self, study: Study) -> None:
        """Raise ParibusError if the arms of a study cannot be compared or tuned."""

    def facts(self, study: Study) -> StudyFacts:
        """Return the facts of a study for the analysis; by default none."""
        return StudyFacts()

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return an arm's facts for the analysis; by default none."""
        return ArmFacts()

    def tuning_problem(self, key: str) -> str:
        """Return why a key cannot be tuned; empty if it can."""
        return ""

    def tuning_sections(self, study: Study, *, asks: bool) -> dict[str, Any]:
        """Return the sections of the study that tunes `study`."""
        return {}

    def tuning_overrides(self, study: Study, arm: str) -> dict[str, Any]:
        """Return the overrides of a tuning trial of `arm`, besides the arm's own."""
        return {}


OWN_TRAINER = StudyFormat()


def require_stacked(study: Study, feature: str) -> None:
    """Raise ParibusError unless the study uses the built-in engine, which `feature` needs."""
    if study.trainer != STACKED:
        raise ParibusError(
            f"'{study.name}' is run by trainer '{study.trainer}'; {feature} needs the trainer "
            f"'{STACKED}'",
            code="unsupported",
        )


def format_of(trainer: object) -> StudyFormat:
    """Return the format of a trainer's studies. Raises ParibusError if it is unknown."""
    if isinstance(trainer, dict) and trainer.get("kind") == COMMAND:  # a table of its options
        trainer = COMMAND
    if isinstance(trainer, str) and trainer in PROVIDED["format"]:
        return provided("format", trainer)
    if isinstance(trainer, str) and ":" in trainer:
        return OWN_TRAINER
    known = nearest(str(trainer), PROVIDED["format"])
    raise ParibusError(
        f"trainer = {trainer!r:.80} is unknown: {known}; your own is "
        f"'package.module:name' or 'file.py:name', and a table [trainer] has kind = '{COMMAND}'",
        code="unknown",
    )
