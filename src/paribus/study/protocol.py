"""Interfaces for trainers and for the sections of a study file that configure them.

A trainer declares its metrics and controls (`Declaration`), and yields a `TrialRecord` for each
trial (arm, seed). A `StudyFormat` validates the trainer's sections of a study file and provides
the metadata that the analysis needs (`StudyFacts`, `ArmFacts`). No custom code runs when records
are read.
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
    """Protocol for trainers: `declare` is called first, then `run` until all trials exist."""

    def declare(self, study: Study) -> Declaration:
        """Return the metrics and controls of the study's trials.

        Raises ParibusError if the trainer's sections are invalid.
        """
        ...

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Train `trials`, and yield (trial, record) as each trial finishes.

        Use `study.setting(arm)` to get the settings of an arm's trials.
        """
        ...


class Sections(TrialSetting, Part):
    """Unvalidated sections of a study file with a custom trainer."""

    model_config = ConfigDict(extra="allow")


class StudyFormat:
    """Base class for study formats, which validate a trainer's sections of a study file."""

    model: type[BaseModel]
    """Pydantic model of the trainer's sections of a study file."""
    setting_model: type[BaseModel]
    """Pydantic model of a trial's settings, which are the sections that arms can override."""
    loss: str = ""
    """Name of the metric for held-out loss in nats per token, or "" if none exists."""
    defaults: Mapping[str, Any] = MappingProxyType({"inference": {"target": "this item set"}})
    """Default values of common study sections, keyed by section; tables are merged key by key."""
    free: Sequence[tuple[str, ...]] = ()
    """Paths of tables with user-defined keys."""
    is_closed: bool = True
    """Whether unknown keys in a trial's settings raise an error."""
    alternatives: Mapping[str, str] = MappingProxyType({})
    """Mutually exclusive keys: overriding a key removes the key to which it maps."""

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table of a study file with shorthand notation expanded."""
        return table

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Validate and return the trainer's sections of a study file.

        `known` are other valid keys, which error messages can suggest.
        """
        sections = self._validated(self.model, table, known)
        return {name: getattr(sections, name) for name in self.model.model_fields}

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the sections that arms can override, as a dict."""
        return study.model_dump(include=set(self.setting_model.model_fields))

    def setting(self, shared: dict[str, Any]) -> Any:
        """Validate and return a trial's settings, given the sections with an arm's overrides."""
        return self._validated(self.setting_model, shared)

    def _validated(
        self, model: type[BaseModel], table: dict[str, Any], known: Sequence[str] = ()
    ) -> Any:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            raise ParibusError(self.word(explain(error, model, known))) from None

    def word(self, problem: str) -> str:
        """Return an error message with internal keys replaced by those of a study file."""
        return problem

    def suggested(self, table: Mapping[str, Any]) -> list[str]:
        """Return further keys of a study file that error messages can suggest."""
        return []

    def expand(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides as (key, value) pairs, in order of application."""
        return list(overrides.items())

    def validate(self, study: Study) -> None:
        """Raise ParibusError if the arms of a study cannot be compared or tuned."""

    def facts(self, study: Study) -> StudyFacts:
        """Return metadata of a study for the analysis, by default empty."""
        return StudyFacts()

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return metadata of an arm for the analysis, by default empty."""
        return ArmFacts()

    def tuning_problem(self, key: str) -> str:
        """Return why a key cannot be tuned, or "" if it can."""
        return ""

    def tuning_sections(self, study: Study, *, asks: bool) -> dict[str, Any]:
        """Return the sections of `study` that the tuning study replaces.

        If `asks` is True, tuning trials are also evaluated on tasks.
        """
        return {}

    def tuning_overrides(self, study: Study, arm: str) -> dict[str, Any]:
        """Return additional overrides for the tuning trials of `arm`."""
        return {}


class OwnFormat(StudyFormat):
    """Study format for custom trainers, without validation of their sections."""

    setting_model = Sections
    is_closed = False

    def sections(self, table: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        """Return all tables without validation."""
        for name, section in table.items():
            if not isinstance(section, dict):
                raise ParibusError(f"unknown key '{name}'; {nearest(name, known)}", code="unknown")
        return table

    def shared(self, study: Study) -> dict[str, Any]:
        """Return all sections that are not fields of `Study`, as a dict."""
        return study.model_dump(include=set(study.model_extra or ()))


OWN_FORMAT = OwnFormat()


def require_stacked(study: Study, feature: str) -> None:
    """Raise ParibusError unless the study uses the built-in engine, which `feature` needs."""
    if study.trainer != STACKED:
        raise ParibusError(
            f"{feature} requires trainer = '{STACKED}', but study '{study.name}' uses "
            f"'{study.trainer}'; change the trainer",
            code="unsupported",
        )
