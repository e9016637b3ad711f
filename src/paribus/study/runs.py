"""Studies of runs that other programs made: what the section `[runs]` says, and how it is read.

Nothing is trained: the trainer `runs` finds the runs of each arm in logs and tables
(`paribus.readers`). Where they are no pairs (`inference.test = "welch_t"`, the default here) a seed
numbers the runs of an arm, and two runs of one number have nothing in common.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.metric import LONGEST, Metric, readable
from paribus.study.base import MOST_ENTRIES, MOST_SEEDS, Part, Seed, TrialSetting
from paribus.study.trainer import ArmFacts, StudyFacts, StudyFormat

if TYPE_CHECKING:
    from paribus.study.study import Study

Word = Annotated[str, Field(max_length=LONGEST)]
Number = Annotated[float, Field(strict=False)]
BUDGETS = {"steps": "steps", "tokens": "tokens", "seconds": "s"}  # to a target, with their units
TO_TARGET = "_to_target"


class Score(Part):
    """A number of every run, by the name that its files give it."""

    better: Literal["lower", "higher"]
    """Which direction is an improvement."""
    label: Word = ""
    """What readers call it; by default its name."""
    unit: Word = ""
    """Of its values."""
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    """Decimal places that are shown."""
    by_item: bool = False
    """Whether it is the mean over items that its files give one by one, in equal numbers."""
    resolution: Annotated[Number, Field(gt=0)] | None = None
    """The smallest difference that it can show, where runs may well be equal: 0.01 of a share of
    100 questions. Without it, runs of an arm that are all equal are asked about, and not tested."""


class RunsSection(Part):
    """The section `[runs]`: files, columns, and scores to compare."""

    paths: Annotated[
        tuple[Annotated[str, Field(max_length=4096)], ...],
        Field(strict=False, max_length=MOST_ENTRIES),
    ] = ()
    """Files, folders and patterns, from the study file's folder; `new=runs/*.txt` names the arm."""
    reader: Word = ""
    """A reader's name, or the user's own: `file.py:name`; by default each file is recognised."""
    arm: Word = "arm"
    """The column or fact that names the arm of a run; `folder` or `name`: that of its file, where
    `seed_3` and `checkpoint-500` are passed over."""
    seed: Word = "seed"
    """The column or fact that is the seed of a run."""
    label: Word = ""
    """What the files call an arm; by default its name."""
    metric: Word = ""
    """The column of the score's name, of a long table, which has a row for each score."""
    value: Word = ""
    """Its column of the score's value."""
    step: Word = ""
    """The column of steps, where a run has several rows of a table."""
    item: Word = ""
    """The column of items, where a run has a row for each question or document."""
    at_step: Number | None = None
    """The step at which scores are read; by default the last one."""
    target: Number | None = None
    """A value of the primary score: what a run needs to come there is compared too, as
    `steps_to_target`, `tokens_to_target` and `seconds_to_target`, as far as curves tell."""
    crashed: Literal["data", "exclude"] = "data"
    """A run whose primary score is not finite: a result (`data`), so that an arm that loses more
    runs is never called better; or left out, where the machine was at fault. Counts are told."""
    stopped_early: Literal["ask", "ok"] = "ask"
    """Whether runs that are called crashed or failed, and have a score, were stopped by a budget
    that is the design (`ok`)."""
    where: Annotated[tuple[Word, ...], Field(strict=False, max_length=MOST_ENTRIES)] = ()
    """Conditions that the runs meet, such as `lr=0.01`; others are left out."""
    best_of: Word = ""
    """A setting of which the best run of each seed is taken, by the score itself."""
    scores: Annotated[dict[Word, Score], Field(max_length=MOST_ENTRIES)] = Field(
        default_factory=dict
    )
    """What is compared, by name."""
    without: Annotated[tuple[Seed, ...], Field(strict=False, max_length=MOST_SEEDS)] = ()
    """Seeds that an arm has no run of; of a study that was registered, none."""


class RunsSetting(TrialSetting, Part):
    """The resolved `[runs]` section of one arm."""

    runs: RunsSection


class RunsFormat(StudyFormat):
    """The format of studies of finished runs."""

    defaults = MappingProxyType({"inference": {"test": "welch_t"}})
    free = (("runs", "scores"),)
    # A dump leaves defaults out, so that a key that a later version adds changes no digest.
    left_out = MappingProxyType(
        {
            f"runs.{name}": field.get_default(call_default_factory=True)
            for name, field in RunsSection.model_fields.items()
        }
    )

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return the table with every arm named as its files name it, unless it says otherwise; and
        with Welch's test, unless another is stated."""
        arms, inference = table.get("arms"), table.get("inference", {})
        if isinstance(inference, dict):
            table = table | {"inference": dict(self.defaults["inference"]) | inference}
        if not isinstance(arms, dict):
            return table
        labelled = {}
        for name, arm in arms.items():
            labelled[name] = arm
            set_ = arm.get("set", {}) if isinstance(arm, dict) else None
            if isinstance(set_, dict) and not set_.keys() & {"runs.label"}:
                labelled[name] = arm | {"set": {"runs.label": name} | set_}
        return table | {"arms": labelled}

    def sections(self, table: dict[str, Any], known: Any) -> dict[str, Any]:
        """Return the section `[runs]`, defaults left out."""
        for name in table:
            if name != "runs":
                raise ParibusError(f"unknown key '{name}': {nearest(name, [*known, 'runs'])}")
        section = table.get("runs", {})
        return {"runs": section_from(section).model_dump(mode="json", exclude_defaults=True)}

    def setting(self, shared: dict[str, Any]) -> RunsSetting:
        """Return an arm's resolved section `[runs]`, by which its runs are found."""
        return RunsSetting(runs=section_from(shared.get("runs", {})))

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the section that arms override."""
        return {"runs": dict(study.runs)}

    def facts(self, study: Study) -> StudyFacts:
        """Return the smallest differences that scores can show, as the study states them."""
        scores = section_of(study).scores.items()
        stated = {name: score.resolution for name, score in scores if score.resolution}
        return StudyFacts(resolution=stated)

    def arm_facts(self, study: Study, arm: str) -> ArmFacts:
        """Return the seeds that `arm` has no run of."""
        return ArmFacts(absent=study.setting(arm).runs.without)

    def validate(self, study: Study) -> None:
        """Raise ParibusError if an endpoint is not a score of the study."""
        known = declared(study)
        for endpoint in study.endpoints:
            if endpoint.metric not in known:
                raise ParibusError(
                    f"endpoint '{endpoint.metric}' is not a score: state [runs.scores."
                    f"{endpoint.metric}] with its direction, or {nearest(endpoint.metric, known)}"
                )


def section_of(study: Study) -> RunsSection:
    """Return the section `[runs]` that arms share."""
    return section_from(study.runs)


def declared(study: Study) -> dict[str, Metric]:
    """Return what the study compares its runs by, with what it takes to its target."""
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
    """Return the section that a table says. Raises ParibusError."""
    try:
        return RunsSection.model_validate(table)
    except ValidationError as error:
        raise ParibusError(f"runs: {explain(error, RunsSection)}") from None


FORMAT = RunsFormat()
