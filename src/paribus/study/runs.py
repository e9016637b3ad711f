"""Studies of finished runs by other programs: the section `[runs]` and how it is read.

Nothing is trained: the trainer `runs` finds the runs of each arm in logs and tables
(`paribus.readers`). If runs are unpaired (`inference.test = "welch_t"`, the default here), a
seed only numbers the runs of an arm, and runs with equal seeds have nothing in common.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.metric import Metric, readable
from paribus.study.base import Part, Seed, TrialSetting
from paribus.study.protocol import StudyFormat
from paribus.study.study import Study
from paribus.study.trainer import ArmFacts

Number = Annotated[float, Field(strict=False)]
BUDGETS = {"steps": "steps", "tokens": "tokens", "seconds": "s"}  # to a target, with their units
TO_TARGET = "_to_target"


class Score(Part):
    """A score of every run, by its name in the run's files."""

    better: Literal["lower", "higher"]
    """Which direction is an improvement."""
    label: str = ""
    """Display name; by default its name."""
    unit: str = ""
    """Unit of its values."""
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    """Number of decimal places shown."""
    by_item: bool = False
    """Whether it is the mean of per-item scores in the files, with equally many items in every
    run."""


class RunsSection(Part):
    """The section `[runs]`: files, columns, and scores to compare."""

    paths: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Files, folders and patterns, relative to the study file; `new=runs/*.txt` names the arm."""
    reader: str = ""
    """A reader's name, or a custom reader `file.py:name`; by default each file's format is
    recognised."""
    arm: str = "arm"
    """The column or fact that names the arm of a run. `folder` and `name` use the name of the
    file's folder or of the file, and ignore parts such as `seed_3` and `checkpoint-500`."""
    seed: str = "seed"
    """The column or fact that holds the seed of a run."""
    label: str = ""
    """The arm's name in the files; by default its name in the study."""
    metric: str = ""
    """The column with the score's name, in a long table with a row for each score."""
    value: str = ""
    """The column with the score's value, in a long table."""
    step: str = ""
    """The column of steps, if a run has several rows in a table."""
    item: str = ""
    """The column of items, if a run has a row for each question or document."""
    at_step: Number | None = None
    """The step at which scores are read; by default the last one."""
    target: Number | None = None
    """A value of the primary score. The budget that a run needs to reach it is compared too, as
    `steps_to_target`, `tokens_to_target` and `seconds_to_target`, as far as curves record it."""
    crashed: Literal["data", "exclude"] = "data"
    """How to treat a run whose primary score is not finite. `data` counts it as a result, so
    that an arm that loses more runs is never called better. `exclude` drops it, for a fault
    of the machine. Counts are reported."""
    stopped_early: Literal["ask", "ok"] = "ask"
    """How to treat runs that are marked crashed or failed but have a score. `ok` says that a
    planned budget stopped them."""
    where: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Conditions that runs must meet, such as `lr=0.01`; other runs are excluded."""
    best_of: str = ""
    """A setting that varies among an arm's runs: only the best run of each seed is used, chosen
    by the primary score itself."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """The scores to compare, by name."""
    without: Annotated[tuple[Seed, ...], Field(strict=False)] = ()
    """Seeds for which an arm has no run."""


class RunsSetting(TrialSetting, Part):
    """The resolved `[runs]` section of an arm."""

    runs: RunsSection


class RunsFormat(StudyFormat):
    """The format of studies of finished runs."""

    model = setting_model = RunsSetting
    defaults = MappingProxyType({"inference": {"target": "this item set", "test": "welch_t"}})
    free = (("runs", "scores"),)

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table with each arm's name as its `runs.label`, unless the arm sets one."""
        arms = table.get("arms")
        if not isinstance(arms, dict):
            return table
        labelled = {}
        for name, arm in arms.items():
            labelled[name] = arm
            set_ = arm.get("set", {}) if isinstance(arm, dict) else None
            if isinstance(set_, dict) and "runs.label" not in set_:
                labelled[name] = arm | {"set": {"runs.label": name} | set_}
        return table | {"arms": labelled}

    def sections(self, table: dict[str, Any], known: Any) -> dict[str, Any]:
        """Return the validated section `[runs]` without defaults."""
        section = super().sections({"runs": {}} | table, known)["runs"]
        return {"runs": section.model_dump(mode="json", exclude_defaults=True)}

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return the seeds for which `arm` has no run."""
        return ArmFacts(absent=study.setting(arm).runs.without)

    def validate(self, study: Study) -> None:
        """Raise ParibusError if an endpoint is not a score of the study."""
        known = declared(study)
        for endpoint in study.endpoints:
            if endpoint.metric not in known:
                raise ParibusError(
                    f"endpoint '{endpoint.metric}' is not a score: add [runs.scores."
                    f"{endpoint.metric}] with its direction, or {nearest(endpoint.metric, known)}"
                )


def section_of(study: Study) -> RunsSection:
    """Return the section `[runs]` that arms share."""
    return section_from(study.runs)


def declared(study: Study) -> dict[str, Metric]:
    """Return the metrics of the study's runs by name, including the budgets to the target."""
    section = section_of(study)
    metrics = {
        name: Metric(
            name,
            score.label or readable(name),
            score.unit,
            score.better,
            "evaluation",
            digits=score.digits,
        )
        for name, score in section.scores.items()
    }
    if section.target is not None:
        for budget, unit in BUDGETS.items():
            name = f"{budget}{TO_TARGET}"
            label = f"{budget} to {section.target:g}"
            digits = 1 if budget == "seconds" else 0
            metrics[name] = Metric(name, label, unit, "lower", "evaluation", digits=digits)
    return metrics


def section_from(table: Any) -> RunsSection:
    """Return the section in a table. Raises ParibusError if it is invalid."""
    try:
        return RunsSection.model_validate(table)
    except ValidationError as error:
        raise ParibusError(f"runs: {explain(error, RunsSection)}") from None


FORMAT = RunsFormat()
