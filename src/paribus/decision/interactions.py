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
    results = []
    for interacting in analysis.interactions:
        arms = (*interacting.of, *interacting.than)
        why = next((w for arm in arms if (w := invalid.get((arm, interacting.metric)))), "")
        says, tested = interacting.decided, interacting.holm_p is not None
        results.append(
            Depends(
                *(
                    interacting.name,
                    interacting.title,
                    interacting.metric,
                    _word(interacting, why, analysis.study.inference.alpha),
                ),
                *(interacting.of, interacting.than),
                **stated(says),
                p=says.p_value if says and tested else None,
                adjusted_p=interacting.holm_p,
                margin=interacting.margin,
                why_not=why or interacting.why_not,
                found=interacting,
            )
        )
    return results


def _word(interacting: Interacting, invalid: str, alpha: float) -> DependsWord:
    if invalid:
        return "INVALID"
    if interacting.decided is None or interacting.decided.descriptive_only:
        return "DESCRIPTIVE"
    if interacting.alike(alpha):
        return "SAME"
    return "DIFFERS" if interacting.differs(alpha) else "UNRESOLVED"
