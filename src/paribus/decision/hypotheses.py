"""Evaluation of a study's hypotheses against its verdicts."""

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
    """Evaluation of one hypothesis by all verdicts on its endpoints.

    Attributes:
        name, statement: see `paribus.study.Hypothesis`.
        state: "supported", "contradicted", "mixed" (verdicts disagree) or "undecided" (no verdict
            supports or contradicts the hypothesis).
        supporting, contradicting: number of verdicts that support or contradict the hypothesis.
        verdicts: total number of verdicts on the endpoints of the hypothesis.
    """

    name: str
    statement: str
    state: HypothesisState
    supporting: int
    contradicting: int
    verdicts: int


def supports(hypothesis: Hypothesis, arm: str, row: str, outcome: str) -> bool | None:
    """Return True if a verdict supports a hypothesis, False if it contradicts it, else None.

    Args:
        hypothesis: the hypothesis.
        arm: arm of the verdict.
        row: ID of the rule's row that applies to the arm.
        outcome: outcome of this row.
    """
    if hypothesis.arms and arm not in hypothesis.arms:
        return None
    named = {outcome, f"row {row}"}
    if named & set(hypothesis.supported_by):
        return True
    return False if named & set(hypothesis.contradicted_by) else None


def judge(study: Study, verdicts: Sequence[Verdict]) -> list[Judgement]:
    """Evaluate all hypotheses of a study, or return [] if there are no verdicts."""
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
    """Raise ParibusError if a hypothesis is invalid, for example if it names an unknown arm."""
    compared = [arm for arm, _ in study.contrasts]
    judged = [endpoint.metric for endpoint in study.judged]
    outcomes = [outcome for outcome in OUTCOMES if outcome not in UNJUDGED]
    known = [*outcomes, *(f"row {row.id}" for row in rule.rows)]
    names = [hypothesis.name for hypothesis in study.hypotheses]
    for hypothesis in study.hypotheses:
        where = f"hypothesis '{hypothesis.name}'"
        if names.count(hypothesis.name) > 1:
            raise ParibusError(f"{where} is declared more than once; use unique names")
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
            (named, known, f"'{{}}' is not an outcome or row of the rule '{rule.name}'"),
        ):
            if unknown := next((name for name in stated if name not in possible), None):
                hint = nearest(unknown, possible)
                raise ParibusError(f"{where}: {problem.format(unknown)}; {hint}")
