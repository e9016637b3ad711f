"""Data classes for verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from paribus.analysis import Interacting
from paribus.decision.evidence import Evidence
from paribus.decision.word import Word


@dataclass(frozen=True)
class Needed:
    """Requirements for resolving a verdict, such as a number of seed pairs.

    Attributes:
        pairs: total number of seed pairs, or runs per arm; None if more would not help, or if the
            number is unknown. With `why_not` "more_harm", it would show harm.
        why_not: code of the reason why the number is unknown (see `report.cautions`), or "" if it
            is known or not needed.
        instead: code of a remedy besides more seeds, such as "items", or "" for none.
    """

    pairs: int | None = None
    why_not: str = ""
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Test result for a difference on one primary endpoint.

    Attributes:
        metric: name of the endpoint.
        effect, low, high: difference and its confidence interval at level 1 - alpha, in the unit of
            the metric (log ratio for metrics that are compared as ratios).
        p, adjusted_p: unadjusted and Holm-adjusted p-value of the primary test; None if it was not
            run.
        n: number of seed pairs, or of runs in the smaller arm.
        margin: registered equivalence margin, in the same unit as `effect`.
    """

    metric: str
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float | None
    n: int
    margin: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict(Answer):
    """Verdict on one arm and one primary endpoint.

    Attributes:
        arm, reference: names of the arm and of its reference.
        label: display name of the endpoint.
        word: verdict label, such as "BETTER" (`decision.word`).
        cost: cost problem of a BETTER arm ("not measured", "over" or "not shown"), or "" for none.
        target: description of the target population, such as `this text`, or "".
        rule: name of the registered rule.
        row, outcome, reason: ID, outcome and reason of the rule's row that applies.
        supports, contradicts: names of the hypotheses that the verdict supports or contradicts.
        evidence: evidence on which the verdict is based.
        needed: requirements for resolving the verdict.
        p_over_studies: `adjusted_p` times the number of studies with primary tests on the same test
            text, according to the ledger (Bonferroni). For information only.
    """

    arm: str
    reference: str
    label: str
    word: Word
    cost: str
    target: str
    rule: str
    row: str
    outcome: str
    reason: str
    supports: tuple[str, ...]
    contradicts: tuple[str, ...]
    evidence: Evidence
    needed: Needed
    p_over_studies: float | None = None

    def __repr__(self) -> str:
        return f"<Verdict {self.arm}, {self.metric}: {self.word}>"


@dataclass(frozen=True, kw_only=True)
class Depends(Answer):
    """Verdict on one interaction, a difference between mean effects.

    Attributes:
        name, title: name and display name of the interaction.
        word: verdict label: "SAME" if equivalent within the margin, or else "DIFFERS" if
            significant; other labels are as for `Verdict`.
        of, than: arms whose mean effects are compared.
        why_not: why the arms cannot be compared, or "" if they can.
        interacting: analysis of the interaction.
    """

    name: str
    title: str
    word: Literal["DIFFERS", "SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"]
    of: tuple[str, ...]
    than: tuple[str, ...]
    why_not: str
    interacting: Interacting = field(repr=False)
