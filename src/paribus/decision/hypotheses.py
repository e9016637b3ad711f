"""A study's hypotheses, judged by its verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paribus.decision.rule import OUTCOMES, UNJUDGED, Rule
from paribus.errors import ParibusError, nearest
from paribus.study import Hypothesis, Study

if TYPE_CHECKING:
    from paribus.decision.schema import Verdict


HypothesisState = Literal["supported", "contradicted", "mixed", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """A hypothesis, judged by all verdicts on its endpoints.

    Attributes:
        state: mixed if some verdicts support the hypothesis and others contradict it, undecided
            if none does either.
        supporting, contradicting, verdicts: counts of verdicts.
    """

    name: str
    statement: str
    state: HypothesisState
    supporting: int
    contradicting: int
    verdicts: int


def supports(hypothesis: Hypothesis, arm: str, row: str, outcome: str) -> bool | None:
    """Return True if the rule's row for `arm` supports a hypothesis, False if it contradicts it,
    and None otherwise."""
    if hypothesis.arms and arm not in hypothesis.arms:
        return None
    named = {outcome, f"row {row}"}
    if named & set(hypothesis.supported_by):
        return True
    return False if named & set(hypothesis.contradicted_by) else None


def judge(study: Study, verdicts: Sequence[Verdict]) -> list[Judgement]:
    """Judge every hypothesis of the study by the verdicts. Without verdicts, the list is empty."""
    return [_judge(hypothesis, verdicts) for hypothesis in study.hypotheses if verdicts]


def _judge(hypothesis: Hypothesis, verdicts: Sequence[Verdict]) -> Judgement:
    bearings = [
        supports(hypothesis, v.arm, v.row, v.outcome)
        for v in verdicts
        if hypothesis.endpoint in (None, v.metric)
        and (not hypothesis.arms or v.arm in hypothesis.arms)
    ]
    yes, no = bearings.count(True), bearings.count(False)
    state: HypothesisState = "supported" if yes else "contradicted" if no else "undecided"
    if yes and no:
        state = "mixed"
    return Judgement(hypothesis.name, hypothesis.statement, state, yes, no, len(bearings))


def require_hypotheses(study: Study, rule: Rule) -> None:
    """Raise ParibusError if a hypothesis names something that the study or its rule lacks."""
    compared = [arm for arm, _ in study.contrasts]
    judged = [endpoint.metric for endpoint in study.judged]
    outcomes = [outcome for outcome in OUTCOMES if outcome not in UNJUDGED]
    known = [*outcomes, *(f"row {row.id}" for row in rule.rows)]
    names = [hypothesis.name for hypothesis in study.hypotheses]
    for hypothesis in study.hypotheses:
        where = f"hypothesis '{hypothesis.name}'"
        if names.count(hypothesis.name) > 1:
            raise ParibusError(f"{where} is declared twice; give each its own name")
        named = [*hypothesis.supported_by, *hypothesis.contradicted_by]
        if not named:
            raise ParibusError(
                f"{where} has neither supported_by nor contradicted_by; set one, such as "
                'supported_by = ["ADOPT"]'
            )
        endpoints = [] if hypothesis.endpoint is None else [hypothesis.endpoint]
        for stated, possible, problem in (
            (hypothesis.arms, compared, "arm '{}' is compared with nothing"),
            (endpoints, judged, "'{}' is not a primary endpoint, and has no verdict"),
            (named, known, f"'{{}}' is not an outcome, and no row of the rule '{rule.name}'"),
        ):
            if unknown := next((name for name in stated if name not in possible), None):
                hint = nearest(unknown, possible)
                raise ParibusError(f"{where}: {problem.format(unknown)}: {hint}")
