"""Interfaces of trainers and of the formats of their study sections.

A trainer turns (arm, seed) into records. It declares its metrics and its controls (`Declaration`),
and yields a `TrialRecord` for each trial. A `StudyFormat` validates the trainer's sections of a
study file, and provides the facts that the analysis needs as data (`StudyFacts`, `ArmFacts`).
Reading records runs no custom code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.study.base import Part, TrialSetting
from paribus.study.study import Study
from paribus.study.trainer import STACKED, ArmFacts, Declaration, StudyFacts, Trial, TrialRecord


class Trainer(Protocol):
    """Protocol of trainers: `declare` is called first, then `run` while trials are missing."""

    def declare(self, study: Study) -> Declaration:
        """Return the metrics and controls of the study's trials.

        Raises ParibusError if the trainer's sections are invalid.
        """
        ...

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Train `trials`, and yield (trial, record) when a trial is finished.

        `study.setting(arm)` returns the settings of an arm's trials.
        """
        ...


class Sections(TrialSetting, Part):
    """Unvalidated sections of a study file for a custom trainer."""

    model_config = ConfigDict(extra="allow")


class StudyFormat:
    """Base class of formats, which validate and interpret a trainer's sections of a study file."""

    model: type[BaseModel]
    """Pydantic model of the trainer's sections of a study file."""
    setting_model: type[BaseModel]
    """Pydantic model of a trial's settings: the sections that arms override."""
    loss: str = ""
    """Name of the metric of held-out loss in nats per token, or "" if none exists."""
    defaults: Mapping[str, Any] = MappingProxyType({"inference": {"target": "this item set"}})
    """Defaults of sections that all trainers share, by name; tables are merged key by key."""
    free: Sequence[tuple[str, ...]] = ()
    """Paths of tables whose keys the user chooses."""
    is_closed: bool = True
    """Whether the validation of a trial's settings refuses unknown keys."""
    alternatives: Mapping[str, str] = MappingProxyType({})
    """Keys that exclude each other: an override of a key removes its alternative."""

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table of a study file with its short forms expanded."""
        return table

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Validate and return the trainer's sections of a study file.

        `known` are the keys of the other sections, which errors can suggest.
        """
        sections = self._validated(self.model, table, known)
        return {name: getattr(sections, name) for name in self.model.model_fields}

    def shared(self, study: Study) -> dict[str, Any]:
        """Return a dump of the sections that arms override."""
        return study.model_dump(include=set(self.setting_model.model_fields))

    def setting(self, shared: dict[str, Any]) -> Any:
        """Validate a trial's settings: the `shared` sections with an arm's overrides applied."""
        return self._validated(self.setting_model, shared)

    def _validated(
        self, model: type[BaseModel], table: dict[str, Any], known: Sequence[str] = ()
    ) -> Any:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            raise ParibusError(self.word(explain(error, model, known))) from None

    def word(self, problem: str) -> str:
        """Return an error message with its keys renamed to those of a study file."""
        return problem

    def expand(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides as (key, value) in the order in which they are applied."""
        return list(overrides.items())

    def validate(self, study: Study) -> None:
        """Raise ParibusError if the arms of a study cannot be compared or tuned."""

    def facts(self, study: Study) -> StudyFacts:
        """Return facts about a study for the analysis; the default is no facts."""
        return StudyFacts()

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return facts about an arm for the analysis; the default is no facts."""
        return ArmFacts()

    def tuning_problem(self, key: str) -> str:
        """Return why a key cannot be tuned, or "" if it can."""
        return ""

    def tuning_sections(self, study: Study, *, asks: bool) -> dict[str, Any]:
        """Return the sections of the tuning study that replace those of `study`.

        `asks` is whether its trials answer the questions of tasks.
        """
        return {}

    def tuning_overrides(self, study: Study, arm: str) -> dict[str, Any]:
        """Return overrides for the tuning trials of `arm`, in addition to those of the arm."""
        return {}


class OwnFormat(StudyFormat):
    """The format of custom trainers, whose sections are not validated."""

    setting_model = Sections
    is_closed = False

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Return all tables, unvalidated."""
        for name, section in table.items():
            if not isinstance(section, dict):
                raise ParibusError(f"unknown key '{name}': {nearest(name, known)}", code="unknown")
        return table

    def shared(self, study: Study) -> dict[str, Any]:
        """Return a dump of all tables that `Study` does not declare."""
        return study.model_dump(include=set(study.model_extra or ()))


OWN_FORMAT = OwnFormat()


def require_stacked(study: Study, feature: str) -> None:
    """Raise ParibusError unless the study uses the built-in engine, which `feature` needs."""
    if study.trainer != STACKED:
        raise ParibusError(
            f"{feature} needs the trainer '{STACKED}', but study '{study.name}' uses "
            f"'{study.trainer}'",
            code="unsupported",
        )
