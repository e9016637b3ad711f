"""The protocol of trainers, and of the readers of their sections of a study file.

A trainer turns (arm, seed) into records. It declares what it measures and holds equal
(`Declaration`) and yields a `TrialRecord` for each trial. A `StudyFormat` reads its sections, and
gives the analysis the facts that it needs as data (`StudyFacts`, `ArmFacts`). Reading records runs
no custom code.
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


class StudyFormat:
    """Reader of a trainer's sections."""

    model: type[BaseModel]
    """The model of its sections of a study file, and of those of an arm that a trial needs."""
    setting_model: type[BaseModel]
    loss: str = ""
    """The held-out loss of its trials in nats per token; empty if it has no such metric."""
    defaults: Mapping[str, Any] = MappingProxyType({"inference": {"target": "this item set"}})
    """Defaults of the sections that are not the trainer's, by name; of tables key by key."""
    free: Sequence[tuple[str, ...]] = ()
    """Tables whose keys the user chooses, by their path."""
    is_closed: bool = True
    """Whether the validation of a trial's setting refuses unknown keys."""
    alternatives: Mapping[str, str] = MappingProxyType({})
    """Pairs of keys for the same thing: an override of one replaces the other."""

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table of a study file with its short forms written out."""
        return table

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Return the trainer's sections of a study file, validated; `known` are all other keys."""
        sections = self._validated(self.model, table, known)
        return {name: getattr(sections, name) for name in self.model.model_fields}

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the dumped sections that arms override."""
        return study.model_dump(include=set(self.setting_model.model_fields))

    def setting(self, shared: dict[str, Any]) -> Any:
        """Return a trial's settings: `shared`, with an arm's overrides applied, after
        validation."""
        return self._validated(self.setting_model, shared)

    def _validated(
        self, model: type[BaseModel], table: dict[str, Any], known: Sequence[str] = ()
    ) -> Any:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            raise ParibusError(self.word(explain(error, model, known))) from None

    def word(self, problem: str) -> str:
        """Return a problem with the keys named as in a study file."""
        return problem

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


class OwnFormat(StudyFormat):
    """The format of custom trainers, whose sections have no models."""

    setting_model = Sections
    is_closed = False

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Return all tables, unvalidated."""
        for name, section in table.items():
            if not isinstance(section, dict):
                raise ParibusError(f"unknown key '{name}': {nearest(name, known)}", code="unknown")
        return table

    def shared(self, study: Study) -> dict[str, Any]:
        """Return all tables that are no study's own."""
        return study.model_dump(include=set(study.model_extra or ()))


OWN_FORMAT = OwnFormat()


def require_stacked(study: Study, feature: str) -> None:
    """Raise ParibusError unless the study uses the built-in engine, which `feature` needs."""
    if study.trainer != STACKED:
        raise ParibusError(
            f"'{study.name}' is run by trainer '{study.trainer}'; {feature} needs the trainer "
            f"'{STACKED}'",
            code="unsupported",
        )
