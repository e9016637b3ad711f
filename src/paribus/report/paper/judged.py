"""What every study found of every arm, in a few states that sentences are total over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from paribus import numbers
from paribus.analysis import Contrast
from paribus.decision import Verdict
from paribus.report.paper.material import Material
from paribus.report.tables import change_of
from paribus.report.words import listed, margin_in_words, raised

State = Literal["harm", "gain", "none", "open", "described", "invalid"]
Stability = Literal["stable", "cured", "rarer", "destabilised", "not cured"]
STATES: tuple[State, ...] = ("harm", "gain", "none", "open", "described", "invalid")
RESOLVED: tuple[State, ...] = ("harm", "gain", "none")
TOLD: tuple[State, ...] = (*RESOLVED, "open")  # tested; what is described only is left to tables
EVENTS = {
    "cured": "instability is cured",
    "rarer": "instability is rarer, and there still,",
    "destabilised": "training is destabilised",
}
# In a column of a table.
SHORT = {
    "harm": "worse",
    "gain": "better",
    "none": "within margin",
    "open": "open",
    "described": "described",
    "invalid": "not judged",
}
# In a sentence, after what it is of.
IN_WORDS = SHORT | {"none": "within the margin", "described": "described only"}
_QUALITY: dict[str, State] = {"Q-": "harm", "Q+": "gain", "Q0": "none", "Q?": "open"}
# What arms are given besides what they are about.
APART = ("model.init.salt", "training.optimizer.learning_rate")
MOST_NAMED = 2  # changes that are told one by one
MOST_NAMES = 72  # characters of the names of arms that a sentence has room for

Treatment = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Judged:
    """One verdict, with what it is of.

    Attributes:
        study: the name of the study in this paper.
        treatment: what sets the arm apart from its reference: (key, its own value) of each.
        against: in words the arm that it is compared with, where that has such a treatment itself.
        called: the arm in words, and `against` where there is one.
        is_unstable: whether the arm itself has more events than the registered threshold.
    """

    study: str
    treatment: Treatment
    against: str
    called: str
    verdict: Verdict
    contrast: Contrast
    margin: str
    is_unstable: bool

    @property
    def state(self) -> State:
        """Of quality on the endpoint."""
        evidence = self.verdict.evidence
        if self.verdict.outcome == "INVALID":
            return "invalid"
        if self.verdict.outcome == "DESCRIPTIVE ONLY":
            return "described"
        return _QUALITY[evidence.state.quality]

    @property
    def stability(self) -> Stability:
        """Of training, with the arm and without."""
        evidence = self.verdict.evidence.state
        if evidence.fix == "harm" or evidence.collapse:
            return "destabilised"
        if evidence.fix == "fix":
            return "rarer" if self.is_unstable else "cured"
        return "stable" if evidence.baseline_stable else "not cured"

    @property
    def metric(self) -> str:
        """The endpoint's name."""
        return self.verdict.metric


def judged(material: Material) -> list[Judged]:
    """Every verdict of a study, in its order; none of the baseline against itself."""
    if material.errors is not None:
        return []
    found = []
    for verdict in material.verdicts:
        contrast = material.analysis.contrast(verdict.arm, verdict.metric)
        against = _against(material, verdict.arm)
        called = material.called[verdict.arm]
        found.append(
            Judged(
                material.name,
                treatment_of(material, verdict.arm),
                against,
                f"{called} against {against}" if against else called,
                verdict,
                contrast,
                margin_in_words(material.study, contrast),
                _is_unstable(material, verdict.arm),
            )
        )
    return _by_size(material, found)


def _is_unstable(material: Material, arm: str) -> bool:
    counted = material.analysis.stability(arm)
    above = material.study.stability.unstable_above
    return counted is not None and counted.any_event.treatment_rate > above


def _by_size(material: Material, found: list[Judged]) -> list[Judged]:
    """Of a study of one treatment at several sizes from the smallest on; others as they are."""
    treatments = {(one.treatment, one.against) for one in found}
    sizes = material.parameters_of
    if len(treatments) > 1:
        return found
    metrics = list(dict.fromkeys(one.metric for one in found))
    return sorted(
        found,
        key=lambda one: (metrics.index(one.metric), sizes.get(one.contrast.reference, 0)),
    )


def _against(material: Material, arm: str) -> str:
    """The name of an arm's reference that has a treatment of the same kind; else empty."""
    reference = material.study.reference(arm)
    if reference is None or material.study.reference(reference) is None:
        return ""
    kinds = [
        {key.rpartition(".")[0] for key, _ in treatment_of(material, one)}
        for one in (arm, reference)
    ]
    return material.called[reference] if kinds[0] & kinds[1] else ""


def judged_on(found: Iterable[Judged], metric: str) -> list[Judged]:
    """Those on this endpoint."""
    return [one for one in found if one.metric == metric]


def treatment_of(material: Material, arm: str) -> Treatment:
    """What sets an arm apart from its reference, whatever was chosen for both by tuning.

    A learning rate of its own is a treatment only where nothing else is.
    """
    tuning = material.study.tuning
    differences = material.study.differences(arm)
    stated = {key: str(own) for key, (_, own) in differences.items()}
    for key in tuning.keys if tuning else ():
        stated.pop(key, None)
    rest = {key: own for key, own in stated.items() if key not in APART}
    return tuple(sorted((rest or stated).items()))


def by_state(found: Iterable[Judged]) -> dict[State, list[Judged]]:
    """The verdicts of each state, in the order of STATES; without those that have none."""
    groups: dict[State, list[Judged]] = {state: [] for state in STATES}
    for one in found:
        groups[one.state].append(one)
    return {state: group for state, group in groups.items() if group}


def answer_of(material: Material, intervals: Collection[State] = STATES) -> str:
    """What a study found, as `answer` has it, or the error rates that it measured."""
    if material.errors is not None:
        return material.errors.sentence
    return answer(judged(material), intervals)


def answer(found: Sequence[Judged], intervals: Collection[State] = STATES) -> str:
    """What a study found, a clause for each endpoint and state, without a full stop.

    `intervals` are the states of which they are told: a table has them too.
    """
    clauses = []
    for metric in dict.fromkeys(one.metric for one in found):
        mine = [one for one in found if one.metric == metric]
        for state, group in by_state(mine).items():
            arms = arms_in_words(group, len(mine))
            clauses.append(_clause(state, group, arms, brief=state not in intervals))
    for stability, does in EVENTS.items():
        mine = [one for one in found if one.metric == found[0].metric]
        group = [one for one in mine if one.stability == stability]
        if group:
            clauses.append(f"{does} with {arms_in_words(group, len(mine))}")
    return "; ".join(clauses)


def arms_in_words(group: Sequence[Judged], of: int) -> str:
    """The arms by name, or how many of all contrasts they are."""
    names = listed([one.called for one in group])
    if len(group) == 1 or len(names) <= MOST_NAMES:
        return names
    return f"all {of} arms" if len(group) == of else f"{len(group)} of {of} arms"


def _clause(state: State, group: Sequence[Judged], arms: str, *, brief: bool) -> str:
    """What is so of several verdicts of one state on one endpoint."""
    label, how = group[0].contrast.declared.label, changes(group, brief=brief)
    if state == "invalid":
        return f"{label} cannot be judged with {arms}"
    if state in ("harm", "gain") and len(group) == 1 and not brief:
        return f"{arms} {raised(group[0].contrast)}"
    said = {
        "harm": "is worse with {}",
        "gain": "is better with {}",
        "none": f"is within the margin of {_margins(group)} with {{}}",
        "described": "is described, not tested, with {}",
        "open": "is not resolved with {}",
    }
    return f"{label} {said[state].format(arms)}{f' ({how})' if how else ''}"


def changes(group: Sequence[Judged], *, brief: bool = False) -> str:
    """The changes, one by one or from the least to the largest, with their unit."""
    known = [one for one in group if one.contrast.decided is not None]
    if not known:
        return ""
    metric = known[0].contrast.declared
    unit = f" {metric.change_unit}" if metric.change_unit else ""
    if len(known) <= MOST_NAMED:
        told = (_mean(one) if brief else change_of(one.contrast) for one in known)
        return f"{' and '.join(told)}{unit}"
    ends = sorted(known, key=lambda one: one.contrast.decided.mean if one.contrast.decided else 0)
    low, high = ends[0], ends[-1]
    return f"{_mean(low)} ({low.called}) to {_mean(high)} ({high.called}){unit}"


def _mean(one: Judged) -> str:
    says = one.contrast.decided
    return numbers.signed(says.mean if says else None, one.contrast.declared.change_digits)


def _margins(group: Sequence[Judged]) -> str:
    return listed(list(dict.fromkeys(one.margin for one in group)))
