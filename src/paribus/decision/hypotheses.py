"""Hypotheses of a study, judged by its verdicts."""

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
        state: "mixed" if some verdicts support the hypothesis and others contradict it,
            "undecided" if no verdict does either.
        supporting, contradicting: numbers of verdicts that support or contradict it.
        verdicts: number of verdicts on its endpoints.
    """

    name: str
    statement: str
    state: HypothesisState
    supporting: int
    contradicting: int
    verdicts: int


def supports(hypothesis: Hypothesis, arm: str, row: str, outcome: str) -> bool | None:
    """Return whether a row of the rule supports a hypothesis about `arm`.

    True means that it supports the hypothesis, False that it contradicts it, None neither.

    Args:
        row: id of the row that applies to the arm.
        outcome: outcome of that row.
    """
    if hypothesis.arms and arm not in hypothesis.arms:
        return None
    named = {outcome, f"row {row}"}
    if named & set(hypothesis.supported_by):
        return True
    return False if named & set(hypothesis.contradicted_by) else None


def judge(study: Study, verdicts: Sequence[Verdict]) -> list[Judgement]:
    """Judge every hypothesis of the study by the verdicts; return [] without verdicts."""
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
            raise ParibusError(f"{where} is declared twice; give each a different name")
        named = [*hypothesis.supported_by, *hypothesis.contradicted_by]
        if not named:
            raise ParibusError(
                f"{where} has neither supported_by nor contradicted_by; set one, such as "
                'supported_by = ["ADOPT"]'
            )
        endpoints = [] if hypothesis.endpoint is None else [hypothesis.endpoint]
        for stated, possible, problem in (
            (hypothesis.arms, compared, "arm '{}' has no reference"),
            (endpoints, judged, "'{}' is not a primary endpoint, so it has no verdict"),
            (named, known, f"'{{}}' is neither an outcome nor a row of the rule '{rule.name}'"),
        ):
            if unknown := next((name for name in stated if name not in possible), None):
                hint = nearest(unknown, possible)
                raise ParibusError(f"{where}: {problem.format(unknown)}; {hint}")
