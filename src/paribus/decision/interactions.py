"""What is said of each interaction: whether effects differ, are alike, or are not told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from paribus.analysis import Analysis, Interacting
from paribus.decision.evidence import stated

if TYPE_CHECKING:
    from paribus.decision.verdict import Verdict

DependsWord = Literal["DIFFERS", "SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"]


@dataclass(frozen=True)
class Depends:
    """Whether the effect of some arms differs from that of others, on one primary endpoint.

    Attributes:
        word: DIFFERS where Holm's p is at most alpha and the difference is not shown to lie inside
            the margin; SAME where it is; UNRESOLVED, DESCRIPTIVE and INVALID as of a verdict.
        of, than: the arms whose mean effects are compared.
        effect, low, high: the difference, in the metric's unit (of what is compared as a ratio, in
            logarithms), and its interval of level 1 - alpha by the test that decides.
        p, adjusted_p: of that test, and by Holm's method over interactions x primary endpoints.
        n: seeds that all these arms share.
        why_not: why it cannot be judged; empty where it can.
        found: what it rests on.
    """

    name: str
    title: str
    metric: str
    word: DependsWord
    of: tuple[str, ...]
    than: tuple[str, ...]
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float | None
    n: int
    margin: float | None
    why_not: str
    found: Interacting = field(repr=False)


def depends(analysis: Analysis, verdicts: Sequence[Verdict]) -> list[Depends]:
    """Judge every interaction; one of an arm that cannot be judged cannot be either."""
    invalid = {(v.arm, v.metric): v.evidence.invalid for v in verdicts}
    told = []
    for one in analysis.interactions:
        arms = (*one.of, *one.than)
        why = next((w for arm in arms if (w := invalid.get((arm, one.metric)))), "")
        says, tested = one.decided, one.holm_p is not None
        told.append(
            Depends(
                *(one.name, one.title, one.metric, _word(one, why, analysis.study.inference.alpha)),
                *(one.of, one.than),
                **stated(says),
                p=says.p_value if says and tested else None,
                adjusted_p=one.holm_p,
                margin=one.margin,
                why_not=why or one.why_not,
                found=one,
            )
        )
    return told


def _word(one: Interacting, invalid: str, alpha: float) -> DependsWord:
    if invalid:
        return "INVALID"
    if one.decided is None or one.decided.descriptive_only:
        return "DESCRIPTIVE"
    if one.alike(alpha):
        return "SAME"
    return "DIFFERS" if one.differs(alpha) else "UNRESOLVED"
