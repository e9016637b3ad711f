"""Studies of finished runs: the section `[runs]` and its validation.

Nothing is trained: the trainer `runs` finds each arm's runs in logs and tables that other programs
wrote (`paribus.readers`). If runs are unpaired (`inference.test = "welch_t"`, the default here), a
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
    """A score to compare, found in the files of every run."""

    better: Literal["lower", "higher"]
    """Which direction is an improvement."""
    label: str = ""
    """Display name; by default the name of the score."""
    unit: str = ""
    """Unit of the score."""
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    """Number of decimal places shown."""
    by_item: bool = False
    """Whether the score is the mean of per-item scores in the files. All runs then need the same
    number of items."""


class RunsSection(Part):
    """The section `[runs]`: files, columns, and scores to compare."""

    paths: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Files, folders and patterns, relative to the study file; `new=runs/*.txt` assigns files to
    the arm `new`."""
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
    """The column of score names, in a long table with one row per score."""
    value: str = ""
    """The column of score values, in a long table."""
    step: str = ""
    """The column of steps, if a run has several rows in a table."""
    item: str = ""
    """The column of items, if a run has a row for each question or document."""
    at_step: Number | None = None
    """The step at which scores are read; by default the last one."""
    target: Number | None = None
    """A value of the primary score. The budgets that runs need to reach it are compared too, as
    `steps_to_target`, `tokens_to_target` and `seconds_to_target`, if curves record them."""
    crashed: Literal["data", "exclude"] = "data"
    """How to treat a run whose primary score is not finite. `data` counts it as a result, so
    that an arm that loses more runs is never called better. `exclude` drops it, for hardware
    faults. The number of such runs is reported."""
    stopped_early: Literal["ask", "ok"] = "ask"
    """How to treat runs that are marked crashed or failed but have a score. `ok` means that a
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
    """Format of studies of finished runs."""

    model = setting_model = RunsSetting
    defaults = MappingProxyType({"inference": {"target": "this item set", "test": "welch_t"}})
    free = (("runs", "scores"),)

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Set the `runs.label` of each arm to the arm's name, unless the arm sets it."""
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
        """Validate the section `[runs]`, and return it without defaults."""
        section = super().sections({"runs": {}} | table, known)["runs"]
        return {"runs": section.model_dump(mode="json", exclude_defaults=True)}

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return an arm's facts: the seeds for which it has no run."""
        return ArmFacts(absent=study.setting(arm).runs.without)

    def validate(self, study: Study) -> None:
        """Raise ParibusError if an endpoint is not a score of the study."""
        known = declared(study)
        for endpoint in study.endpoints:
            if endpoint.metric not in known:
                raise ParibusError(
                    f"endpoint '{endpoint.metric}' is not a declared score; add [runs.scores."
                    f"{endpoint.metric}] with its direction, or {nearest(endpoint.metric, known)}"
                )


def section_of(study: Study) -> RunsSection:
    """Return the section `[runs]` of a study, which its arms share."""
    return section_from(study.runs)


def declared(study: Study) -> dict[str, Metric]:
    """Return the metrics of the study's runs by name, including budgets to reach the target."""
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
    """Validate a table as the section `[runs]`. Raises ParibusError if it is invalid."""
    try:
        return RunsSection.model_validate(table)
    except ValidationError as error:
        raise ParibusError(f"runs: {explain(error, RunsSection)}") from None


FORMAT = RunsFormat()
