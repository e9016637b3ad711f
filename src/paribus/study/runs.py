"""The `[runs]` section of a study, for studies of runs that were trained by other programs.

The trainer `runs` trains nothing; it reads each arm's runs from logs and tables
(`paribus.readers`). If runs are unpaired (`inference.test = "welch_t"`, the default here), seeds
only number an arm's runs, and runs of different arms with equal seeds are not matched.
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
BUDGETS = {"steps": "", "tokens": "", "seconds": "s"}  # to a target, with units beyond the name
TO_TARGET = "_to_target"


class Score(Part):
    """A compared score, which the files of every run must contain."""

    better: Literal["lower", "higher"]
    """Direction of improvement."""
    label: str = ""
    """Display name; by default the name of the score."""
    unit: str = ""
    """Unit of the score."""
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    """Number of decimal places shown."""
    by_item: bool = False
    """Whether the score is the mean of per-item scores in the files. If so, all runs must have the
    same number of items."""


class RunsSection(Part):
    """The `[runs]` section: input files, column names, and compared scores."""

    paths: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Files, folders and glob patterns, relative to the study file. `new=runs/*.txt` assigns the
    matching files to the arm `new`."""
    reader: str = ""
    """A built-in reader's name, or a custom reader `file.py:name`; by default the format of each
    file is detected."""
    arm: str = "arm"
    """The column or configuration value that names a run's arm. `folder` and `name` stand for the
    name of the parent folder or of the file, without suffixes such as `seed_3`."""
    seed: str = "seed"
    """The column or configuration value that contains a run's seed."""
    label: str = ""
    """The arm's name in the files; by default its name in the study."""
    metric: str = ""
    """The column of score names, for tables in long format (one row per score)."""
    value: str = ""
    """The column of score values, for tables in long format."""
    step: str = ""
    """The column of training steps, for tables with several rows per run."""
    item: str = ""
    """The column of item identifiers, for tables with one row per question or document."""
    at_step: Number | None = None
    """The step at which scores are read; by default the last step."""
    target: Number | None = None
    """A value of the primary score. If set, and if curves are available, the steps, tokens and
    seconds needed to reach this value are also compared (`steps_to_target` and so on)."""
    crashed: Literal["data", "exclude"] = "data"
    """How to treat runs whose primary score is not finite. `data` counts them as diverged, and an
    arm with more of them is never judged better. `exclude` drops them, for example after hardware
    faults. Their number is reported in both cases."""
    stopped_early: Literal["ask", "ok"] = "ask"
    """How to treat runs that are marked crashed or failed but have a score. `ask` raises an error;
    `ok` accepts them, for runs that reached a planned budget."""
    where: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Filters such as `lr=0.01`; runs that do not match are excluded."""
    best_of: str = ""
    """A hyperparameter that varies within an arm. For each seed, only the run with the best
    primary score is used."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """Compared scores, keyed by name."""
    without: Annotated[tuple[Seed, ...], Field(strict=False)] = ()
    """Seeds for which the arm has no run."""


class RunsSetting(TrialSetting, Part):
    """The `[runs]` section with an arm's overrides applied."""

    runs: RunsSection


class RunsFormat(StudyFormat):
    """Study format for finished runs of other programs."""

    model = setting_model = RunsSetting
    defaults = MappingProxyType({"inference": {"target": "this item set", "test": "welch_t"}})
    free = (("runs", "scores"),)

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Set each arm's `runs.label` to the arm's name by default."""
        arms = table.get("arms")
        if not isinstance(arms, dict):
            return table
        labelled = {}
        for name, arm in arms.items():
            labelled[name] = arm
            if isinstance(arm, dict) and isinstance(set_ := arm.get("set", {}), dict):
                labelled[name] = arm | {"set": {"runs.label": name} | set_}
        return table | {"arms": labelled}

    def sections(self, table: dict[str, Any], known: Any) -> dict[str, Any]:
        """Validate the `[runs]` section, and return it without default values."""
        section = super().sections({"runs": {}} | table, known)["runs"]
        return {"runs": section.model_dump(mode="json", exclude_defaults=True)}

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return the metadata of an arm: the seeds for which it has no run."""
        return ArmFacts(absent=study.setting(arm).runs.without)

    def validate(self, study: Study) -> None:
        """Raise ParibusError if an endpoint is not a declared score."""
        known = declared(study)
        for endpoint in study.endpoints:
            if endpoint.metric not in known:
                raise ParibusError(
                    f"endpoint '{endpoint.metric}' is not a declared score; add [runs.scores."
                    f"{endpoint.metric}] with its direction, or {nearest(endpoint.metric, known)}"
                )


def section_of(study: Study) -> RunsSection:
    """Return a study's validated `[runs]` section, without arm overrides."""
    return section_from(study.runs)


def declared(study: Study) -> dict[str, Metric]:
    """Return the declared scores and budgets to the target as metrics, keyed by name."""
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
    """Build a `RunsSection` from a table. Raises ParibusError if the table is invalid."""
    try:
        return RunsSection.model_validate(table)
    except ValidationError as error:
        raise ParibusError(f"runs: {explain(error, RunsSection)}") from None


FORMAT = RunsFormat()
