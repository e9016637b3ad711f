"""The `Study` class: shared settings, and arms defined by overrides of these settings.

An arm is a set of dotted overrides, such as `"model.embedding.norm" = "layernorm"`, so the
differences between two arms are known before any training.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from paribus.declared import PROVIDED, provided
from paribus.digests import changes, digest
from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.numbers import plural
from paribus.schema import stamped
from paribus.study.base import MOST_ARMS, MOST_SEEDS, Name, Prose, Seed, Spec, Title, Word
from paribus.study.sections import (
    LEAST_PAIRS,
    Arm,
    Decision,
    Endpoint,
    Hypothesis,
    Inference,
    Interaction,
    Plan,
    Resources,
    Stability,
)
from paribus.study.trainer import (
    COMMAND,
    RUNS,
    STACKED,
    ArmFacts,
    StudyFacts,
)
from paribus.study.tuning import CHOSEN, Tuning, tuning_problems

# What a study says of itself to readers: changing these words does not change the study.
DESCRIPTIVE = frozenset({"title", "question", "description", "claims"})
# What a trial is trained on, which no trial's question is about: recorded trial by trial.
RESOURCES = "resources"

ANY = "*"
# Tables whose keys are not fields: an arm's dotted overrides, and what is tuned.
FREE = (("arms", ANY, "set"), ("tuning", "grid"))

LEARNING_RATE = "training.optimizer.learning_rate"


def _split_seeds(table: dict[str, Any]) -> dict[str, Any]:
    """Expand `seeds = { looks = [...] }` in a study's table to a list of seeds and a plan."""
    seeds = table.get("seeds")
    if not isinstance(seeds, dict):
        return table
    try:
        plan = Plan.model_validate(seeds)
    except ValidationError as error:
        raise ParibusError(f"seeds.{explain(error, Plan)}") from None
    return table | {"seeds": list(range(1, plan.looks[-1] + 1)), "plan": seeds}


def _with_selection(table: dict[str, Any], loss: str) -> dict[str, Any]:
    """Set `tuning.select` to `loss` or the first primary endpoint, if it is missing."""
    tuning, endpoints = table.get("tuning"), table.get("endpoints")
    if not isinstance(tuning, dict) or tuning.get("select"):
        return table
    known = endpoints if isinstance(endpoints, list | tuple) else ()
    primary = [each for each in known if isinstance(each, dict) and each.get("primary")]
    select = loss or (primary[0].get("metric") if primary else None)
    return table | {"tuning": tuning | {"select": select}} if select else table


def format_of(trainer: object) -> Any:
    """Return the study format of a trainer. Raises ParibusError if the trainer is unknown."""
    if isinstance(trainer, dict) and trainer.get("kind") == COMMAND:  # a table of its options
        trainer = COMMAND
    if isinstance(trainer, str) and trainer in PROVIDED["format"]:
        return provided("format", trainer)
    if isinstance(trainer, str) and ":" in trainer:
        return provided("function", "own_format")
    if isinstance(trainer, dict) and "kind" not in trainer:
        raise ParibusError(f"[trainer] has no kind; add kind = '{COMMAND}'", code="missing")
    known = nearest(str(trainer), PROVIDED["format"])
    raise ParibusError(
        f"trainer = {trainer!r:.80} is unknown; {known}; for a custom trainer, use "
        f"'file.py:name' or a [trainer] table with kind = '{COMMAND}'",
        code="unknown",
    )


class Study(Spec):
    """A validated study: arms, seeds, endpoints, decision rule, and the trainer's sections.

    The trainer's sections (`data`, `model` and `training` for the built-in trainer) are also
    attributes. `setting(arm)` returns the settings of an arm's trials.
    """

    model_config = ConfigDict(extra="allow")

    name: Name
    """Name of the study and of its results folder."""
    trainer: Word = STACKED
    """A built-in trainer's name, or a custom trainer `file.py:name`."""
    title: Title = ""
    """Title of the study in reports; by default its name."""
    question: Prose = ""
    """The research question in one sentence, shown at the top of reports."""
    baseline: Name = "baseline"
    """The arm to which other arms are compared by default."""
    arms: Annotated[dict[Name, Arm], Field(min_length=1, max_length=MOST_ARMS)]
    """Arms, keyed by name. Every arm except the baseline must override a setting."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=MOST_SEEDS)]
    """Training seeds: a list such as `[1, 2, 3, 4, 5]`, or `{ looks = [5, 8, 12, 20] }` for
    interim analyses. Every arm has one trial per seed."""
    plan: Plan | None = None
    """Schedule of interim analyses, set by `seeds = { looks = [5, 8, 12, 20] }`; None for a single
    analysis of all seeds."""
    stages: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """Number of seeds in each stage, if `paribus extend` added a second stage; else ()."""
    endpoints: Annotated[tuple[Endpoint, ...], Field(strict=False, min_length=1)]
    """Compared metrics, of which at least one is primary; by default the trainer's endpoints."""
    inference: Inference = Inference()
    stability: Stability = Stability()
    decision: Decision = Decision()
    hypotheses: Annotated[tuple[Hypothesis, ...], Field(strict=False)] = ()
    """Hypotheses, with the verdicts that would support or contradict each of them."""
    interactions: dict[Name, Interaction] = Field(default_factory=dict)
    """Interactions, keyed by name. They are tested on every primary endpoint, as a separate family
    of hypotheses."""
    tuning: Tuning | None = None
    resources: Resources = Resources()

    # Folder at which relative paths start. Not part of the study: it moves with the file.
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    # Whether the study was read from a results folder, whose code may be somebody else's.
    _is_foreign: bool = PrivateAttr(default=False)

    def __repr__(self) -> str:
        return f"Study('{self.name}': {plural(len(self.arms), 'arm')}, seeds {list(self.seeds)})"

    __str__ = __repr__

    @property
    def called(self) -> dict[str, str]:
        """Display names, keyed by arm: the arm's title, or its name if the title is empty."""
        return {name: arm.title or name for name, arm in self.arms.items()}

    @property
    def folder(self) -> Path:
        """Folder of the study file, against which relative paths are resolved."""
        return self._folder

    @property
    def is_foreign(self) -> bool:
        """True if the study was loaded from a results folder without `trust`."""
        return self._is_foreign

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        form = format_of(table.get("trainer", STACKED))
        table = form.as_study(_split_seeds(table))
        known = cls.model_fields
        own = {key: value for key, value in table.items() if key not in known}
        judged = {key: value for key, value in table.items() if key in known}
        for name, default in form.defaults.items():
            section = judged.setdefault(name, default)
            if isinstance(default, dict) and isinstance(section, dict):
                judged[name] = default | section
        sections = form.sections(own, sorted(known))
        return _with_selection(judged, form.loss) | sections

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        for problem in _problems(self):
            raise ParibusError(problem)
        self.format.validate(self)
        for arm, reference in self.contrasts:
            if not self.differences(arm):
                hint = " (set, ref, env, command or folder)" if self.trainer == COMMAND else ""
                raise ParibusError(
                    f"arm '{arm}' does not differ from its reference '{reference}'; add overrides "
                    f"to [arms.{arm}]{hint}",
                    code="conflict",
                )
        return self

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a section of the trainer by name."""

    @property
    def format(self) -> Any:
        """Study format of the trainer (`paribus.study.protocol.StudyFormat`)."""
        return format_of(self.trainer)

    @property
    def facts(self) -> StudyFacts:
        """Metadata of the study, derived from the trainer's sections."""
        return self.format.facts(self)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return {arm: self._setting(arm) for arm in self.arms}

    @cached_property
    def setting_records(self) -> dict[str, dict[str, Any]]:
        """Settings of each arm's trials as JSON-serializable dicts, keyed by arm."""
        return {arm: self.setting(arm).model_dump(mode="json") for arm in self.arms}

    @cached_property
    def _arm_facts(self) -> dict[str, ArmFacts]:
        return {arm: self.format.arm_facts(self, arm) for arm in self.arms}

    def arm_facts(self, arm: str) -> ArmFacts:
        """Return the metadata of an arm, derived from the trainer's sections."""
        return self._arm_facts[arm]

    def setting(self, arm: str) -> Any:
        """Return the shared settings with the overrides and tuned values of `arm` applied."""
        if arm not in self.arms:
            raise ParibusError(f"unknown arm '{arm}'; {nearest(arm, self.arms)}", code="unknown")
        return self._settings[arm]

    def _setting(self, arm: str) -> Any:
        shared = self.format.shared(self)
        chosen = self.tuning.chosen.get(arm, {}) if self.tuning else {}
        overrides = self.format.expand(self.arms[arm].set | chosen)
        for key, value in overrides:
            override(shared, key, value, self.format, where=f"arm '{arm}': ")
        try:
            return self.format.setting(shared)
        except ParibusError as error:
            raise ParibusError(f"arm '{arm}': {error}", code=error.code) from None

    def reference(self, arm: str) -> str | None:
        """Return the arm to which `arm` is compared, or None if it has no reference."""
        reference = self.arms[arm].reference or self.baseline
        return None if reference == arm else reference

    def differences(self, arm: str) -> dict[str, tuple[Any, Any]]:
        """Return {dotted key: (reference's value, arm's value)} for all settings that differ."""
        reference = self.reference(arm) or arm
        return changes(self.setting(reference).model_dump(), self.setting(arm).model_dump())

    def difference_texts(self, arm: str) -> dict[str, str]:
        """Return {dotted key: "reference's value → arm's value"} for all settings that differ."""
        return {
            self.format.word(key): f"{_stated(before, key)} → {_stated(after, key)}"
            for key, (before, after) in self.differences(arm).items()
        }

    def share_tokens(self, arm: str, reference: str) -> bool:
        """Return whether two arms have the same tokenizer, so that their losses are comparable."""
        return self.arm_facts(arm).tokenizer == self.arm_facts(reference).tokenizer

    @property
    def primary(self) -> Endpoint:
        """The first primary endpoint."""
        return self.judged[0]

    @property
    def judged(self) -> tuple[Endpoint, ...]:
        """All primary endpoints."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.primary)

    @property
    def family(self) -> int:
        """Size of the family for Holm's method: number of primary endpoints * contrasts."""
        return len(self.judged) * max(len(self.contrasts), 1)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all endpoints and of the metric by which tuning selects candidates."""
        chosen_by = [self.tuning.select] if self.tuning else []
        return tuple(dict.fromkeys([*(e.metric for e in self.endpoints), *chosen_by]))

    @property
    def contrasts(self) -> list[tuple[str, str]]:
        """All pairs (arm, reference) that are compared."""
        pairs = [(arm, self.reference(arm)) for arm in self.arms]
        return [(arm, reference) for arm, reference in pairs if reference is not None]

    @property
    def trials(self) -> list[tuple[str, int]]:
        """All trials as (arm, seed), ordered by seed to complete pairs early."""
        absent = {arm: frozenset(self.arm_facts(arm).absent) for arm in self.arms}
        return [(arm, seed) for seed in self.seeds for arm in self.arms if seed not in absent[arm]]

    @property
    def is_paired(self) -> bool:
        """True if trials are paired by seed."""
        return self.inference.test != "welch_t"

    @property
    def digest(self) -> str:
        """SHA-256 of the study, excluding descriptive texts, hardware and tuned values."""
        return digest(stamped(substance(self.model_dump(mode="json"))))


def _problems(study: Study) -> Iterator[str]:
    """Yield an error message for each conflict between sections of a study."""
    yield from _unknown_names(study)
    yield from _plan_problems(study)
    if study.tuning is not None:
        arms = {name: arm.set for name, arm in study.arms.items()}
        yield from tuning_problems(study.tuning, study.seeds, arms, study.format.tuning_problem)
    paired = {
        "looks": study.plan,
        "a second stage": study.stages,
        "tuning": study.tuning,
        "interactions": study.interactions,
        f"trainer '{STACKED}'": study.trainer == STACKED,
    }
    if not study.is_paired and (needs := [name for name, stated in paired.items() if stated]):
        yield (
            f'inference.test = "welch_t" does not pair runs, as required by {" and ".join(needs)}; '
            'if runs with equal seeds share data and initial weights, set test = "paired_t" (or '
            "use `paribus judge --pair seed`)"
        )
    if study.interactions and study.plan:
        yield "interactions cannot be combined with interim analyses; specify seeds as a list"
    if study.resources != Resources() and study.trainer != STACKED:
        yield (
            f"[resources] requires trainer = '{STACKED}', but the trainer is '{study.trainer}'; "
            "remove [resources]"
        )
    yield from _endpoint_problems(study)


def _unknown_names(study: Study) -> Iterator[str]:
    if len(set(study.seeds)) < len(study.seeds):
        yield f"seeds {list(study.seeds)} contain a duplicate; list each seed once"
    if study.baseline not in study.arms:
        yield (
            f"baseline '{study.baseline}' is not an arm; add [arms.{study.baseline}], or set "
            f'baseline to an existing arm, such as baseline = "{next(iter(study.arms))}"'
        )
    references = [arm.reference for arm in study.arms.values() if arm.reference]
    sides = [arm for each in study.interactions.values() for arm in (*each.of, *each.than)]
    for arm in (*references, *sides):
        if arm not in study.arms:
            yield f"unknown arm '{arm}' in a reference or interaction; {nearest(arm, study.arms)}"
        elif arm in sides and study.reference(arm) is None:
            yield (
                f"interactions include arm '{arm}', which has no effect because it has no "
                "reference; use arms that are compared with a reference"
            )


def _plan_problems(study: Study) -> Iterator[str]:
    n_seeds, stages = len(study.seeds), study.stages
    if stages and (len(stages) < 2 or min(stages) < 2 or sum(stages) != n_seeds):
        yield (
            f"stages = {list(stages)} is invalid for {n_seeds} seeds, because two or more stages "
            "of at least 2 seeds must sum to it; remove stages, and run `paribus extend`"
        )
    if study.plan is None:
        return
    looks = study.plan.looks
    if stages:
        yield (
            "a study with interim analyses cannot have a second stage; specify seeds as a list, "
            "or add interim analyses to looks"
        )
    if not looks[1:] or looks[0] < LEAST_PAIRS or looks[-1] != n_seeds:
        yield (
            f"looks = {list(looks)} is invalid; list two or more numbers of seeds, from at least "
            f"{LEAST_PAIRS} (the minimum for a test) to {n_seeds} (all seeds)"
        )
    if any(after <= before for before, after in pairwise(looks)):
        yield f"looks = {list(looks)} is not strictly ascending; sort it and remove duplicates"


def _endpoint_problems(study: Study) -> Iterator[str]:
    metrics = [endpoint.metric for endpoint in study.endpoints]
    primary = [endpoint.metric for endpoint in study.judged]
    if len(set(metrics)) < len(metrics):
        yield f"endpoints {metrics} contain a duplicate; list each metric once"
    is_command = study.trainer == COMMAND  # whose metrics are primary if they have a margin
    for endpoint in study.endpoints:
        is_primary = endpoint.primary or (is_command and not primary)
        # Of runs that are there already nobody may have thought of a margin.
        if is_primary and endpoint.margin is None and study.trainer != RUNS:
            key = "metrics." if is_command else "the primary endpoint "
            yield (
                f"{key}{endpoint.metric} has no margin; add the largest change that counts as no "
                "change, such as margin = 0.02"
            )
        if endpoint.smallest_effect is not None and not endpoint.primary:
            yield (
                f"endpoint '{endpoint.metric}' has smallest_effect but is not primary; set "
                "primary = true or remove smallest_effect"
            )
    if not primary:
        yield "no endpoint is primary; add primary = true to the main endpoint"
    if (benefit := study.decision.benefit) is None:
        return
    if benefit not in metrics:
        hint = nearest(benefit, metrics)
        yield f"decision.benefit = '{benefit}' is not an endpoint of the study; {hint}"
    if benefit in primary or study.plan:
        yield (
            f"decision.benefit = '{benefit}' requires a non-primary endpoint and a study without "
            "interim analyses; choose another endpoint, or specify seeds as a list"
        )


def first_stage(study: Study) -> Study:
    """Return a copy of `study` without its second stage."""
    if not study.stages:
        return study
    return study.model_copy(update={"seeds": study.seeds[: study.stages[0]], "stages": ()})


def substance(dump: dict[str, Any]) -> dict[str, Any]:
    """Return the subset of a dumped study that its digest covers.

    Exclude descriptive texts, hardware, tuned values and `decision.unreachable`.
    """

    def without(table: dict[str, Any], keys: Collection[str]) -> dict[str, Any]:
        return {key: value for key, value in table.items() if key not in keys}

    kept = without(dump, {*DESCRIPTIVE, RESOURCES})
    for key in {"arms", "interactions"} & kept.keys():
        kept[key] = {name: without(spec, DESCRIPTIVE) for name, spec in kept[key].items()}
    if "decision" in kept:
        kept["decision"] = without(kept["decision"], {"unreachable"})
    if kept.get("tuning"):
        kept["tuning"] = kept["tuning"] | {CHOSEN: {}}
    return kept


def override(tree: dict[str, Any], key: str, value: Any, form: Any, *, where: str = "") -> None:
    """Set a dotted key in a dumped study or in dumped settings, in place.

    In tables with user-defined keys (`FREE` and `form.free`), the rest of the dotted key is a
    single name. Raises ParibusError for unknown keys, except for those that later validation
    rejects.
    """
    node, path, free = tree, key.split("."), -1
    for table in (*FREE, *form.free):
        if len(path) > len(table) and all(a in (b, ANY) for a, b in zip(table, path, strict=False)):
            free = len(table)
            path[free:] = [".".join(path[free:])]
    for depth, part in enumerate(path):
        is_checked = depth <= (path[0] == "arms") or not form.is_closed
        if part not in node and depth != free and is_checked:
            known = nearest(part, node)
            if path[0] == "set" and depth:
                known += f"; to add it, set {part} in [set] and write {{{part}}} in the command"
            raise ParibusError(f"{where}unknown key '{part}' in '{key}'; {known}", code="unknown")
        if depth < len(path) - 1:
            node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ParibusError(
                f"{where}unknown key '{key}'; '{'.'.join(path[: depth + 1])}' = {node!r} is not a "
                "table, so assign a value to that key instead",
                code="unknown",
            )
    node[path[-1]] = value
    if key == "seeds":
        node["plan"], node["stages"] = None, ()  # they are of the seeds that were
    if key in form.alternatives:
        node[form.alternatives[key].split(".")[-1]] = None


def built(
    table: dict[str, Any],
    *,
    folder: Path,
    label: str = "study",
    foreign: bool = False,
) -> Study:
    """Build a `Study` from a dict, and resolve its relative paths against `folder`.

    Custom code of a `foreign` study is not run (see `paribus.study.trust`). Raises ParibusError,
    prefixed with `label`, if the study is invalid.
    """
    try:
        study = Study.model_validate(table)
    except ValidationError as error:
        also = format_of(table.get("trainer", STACKED)).suggested(table)
        raise ParibusError(f"{label}: {explain(error, Study, also)}") from None
    except ParibusError as error:
        raise ParibusError(f"{label}: {error}", code=error.code) from None
    study._folder, study._is_foreign = folder, foreign
    return study


def _stated(value: Any, key: str = "") -> str:
    """Return a setting's value as text, without the unset keys of tables."""
    if value is None and ".modules." in key:
        return "built-in"
    if isinstance(value, dict):
        stated = {k: v for k, v in value.items() if v is not None and v != {}}
        return ", ".join(f"{key} {_stated(v)}" for key, v in stated.items())
    if isinstance(value, tuple | list):
        return "; ".join(map(_stated, value)) or "none"
    return str(value)
