"""The hypotheses that a study declares, judged by its verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paribus import numbers
from paribus.decision.rule import OUTCOMES, UNJUDGED, Row, Rule
from paribus.errors import ParibusError, nearest
from paribus.study import Hypothesis, Study

if TYPE_CHECKING:
    from paribus.decision.verdict import Verdict


@dataclass(frozen=True)
class Judgement:
    """A hypothesis, judged by all verdicts together.

    Attributes:
        state: mixed where some verdicts support it and some contradict it, open where none does
            either.
        supporting, contradicting: verdicts, of the `verdicts` that it is about.
    """

    name: str
    statement: str
    state: Literal["supported", "contradicted", "mixed", "open"]
    supporting: int
    contradicting: int
    verdicts: int

    @property
    def sentence(self) -> str:
        """`H1a: contradicted (by 1 of 4 verdicts): it costs quality`."""
        of = numbers.plural(self.verdicts, "verdict")
        counts = {
            "supported": f"by {self.supporting} of {of}",
            "contradicted": f"by {self.contradicting} of {of}",
            "mixed": f"{self.supporting} for and {self.contradicting} against, of {of}",
            "open": f"none of {of} bears on it",
        }
        statement = " ".join(self.statement.split())
        return f"{self.name}: {self.state} ({counts[self.state]}): {statement}"


def supports(hypothesis: Hypothesis, row: Row) -> bool | None:
    """Return True where `row` supports the hypothesis, False where it contradicts it, else None."""
    named = {row.outcome, f"row {row.id}"}
    if named & set(hypothesis.supported_by):
        return True
    return False if named & set(hypothesis.contradicted_by) else None


def said_by(study: Study, row: Row, arm: str, metric: str) -> dict[str, bool]:
    """Return, by name, the hypotheses that `row` for `arm` on `metric` supports or contradicts."""
    said = {one.name: supports(one, row) for one in study.hypotheses if is_about(one, arm, metric)}
    return {name: says for name, says in said.items() if says is not None}


def is_about(hypothesis: Hypothesis, arm: str, metric: str) -> bool:
    """Return whether a verdict on `arm` and `metric` bears on the hypothesis."""
    of_arm = not hypothesis.arms or arm in hypothesis.arms
    return of_arm and hypothesis.endpoint in (None, metric)


def judge(study: Study, verdicts: Sequence[Verdict]) -> list[Judgement]:
    """Judge every hypothesis of the study by the verdicts that it is about; none without any."""
    judged = []
    for one in study.hypotheses if verdicts else ():
        mine = [v for v in verdicts if is_about(one, v.arm, v.metric)]
        yes = sum(one.name in v.supports for v in mine)
        no = sum(one.name in v.contradicts for v in mine)
        state = "mixed" if yes and no else "supported" if yes else "contradicted" if no else "open"
        judged.append(Judgement(one.name, one.statement, state, yes, no, len(mine)))
    return judged


def require_hypotheses(study: Study, rule: Rule) -> None:
    """Raise ParibusError for a hypothesis that names what the study or its rule has not."""
    names = [one.name for one in study.hypotheses]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ParibusError(f"hypothesis '{twice}' is stated twice; give each its own name")
    compared = [arm for arm, _ in study.contrasts]
    judged = [endpoint.metric for endpoint in study.judged]
    outcomes = [outcome for outcome in OUTCOMES if outcome not in UNJUDGED]
    known = [*outcomes, *(f"row {row.id}" for row in rule.rows)]
    for one in study.hypotheses:
        where = f"hypothesis '{one.name}'"
        if not compared:
            raise ParibusError(f"{where}: the study compares no arms, so no verdict bears on it")
        if not (one.supported_by or one.contradicted_by):
            raise ParibusError(
                f"{where} is supported and contradicted by nothing; state an outcome, such as "
                'supported_by = ["ADOPT"]'
            )
        for arm in one.arms:
            if arm not in compared:
                raise ParibusError(
                    f"{where}: arm '{arm}' is compared with nothing: {nearest(arm, compared)}"
                )
        if one.endpoint is not None and one.endpoint not in judged:
            raise ParibusError(
                f"{where}: '{one.endpoint}' is no primary endpoint, and has no verdict: "
                f"{nearest(one.endpoint, judged)}"
            )
        for outcome in (*one.supported_by, *one.contradicted_by):
            if outcome not in known:
                raise ParibusError(
                    f"{where}: '{outcome}' is no outcome, and no row of the rule "
                    f"'{rule.name}': {nearest(outcome, known)}"
                )
