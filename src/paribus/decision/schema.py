"""Data classes of verdicts, shared by the other modules of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from paribus.analysis import Interacting
from paribus.decision.evidence import Evidence
from paribus.decision.word import Word


@dataclass(frozen=True)
class Needed:
    """What would resolve a verdict: more seeds, or something else.

    Attributes:
        pairs: seed pairs, or runs per arm; None if more would not help, or the number is unknown.
        why_not: code of the reason why there is no number (`report.cautions` has the sentences),
            or "" if there is one or nothing is left to resolve.
        instead: code of what would help besides more seeds, such as "items" if they cause the
            largest part of the error, or "".
    """

    pairs: int | None = None
    why_not: str = ""
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of testing a difference on one primary endpoint.

    Attributes:
        metric: the endpoint.
        effect, low, high: the difference in the metric's unit (in logarithms if it is compared as a
            ratio), and its interval at level 1 - alpha by the deciding test.
        p, adjusted_p: p of the deciding test, unadjusted and Holm-adjusted over the family; None if
            untested.
        n: number of seed pairs, or of runs in the smaller arm; for an interaction, number of seeds
            that all its arms share.
        margin: the registered margin.
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
    """A decision on one arm and one primary endpoint.

    Attributes:
        arm, reference: the arm, and the arm with which it is compared.
        label: the endpoint's name for readers.
        word: what the evidence says about the arm (`decision.word`).
        cost: the problem with the cost of a BETTER arm: "not measured", "over" or "not shown", or
            "" if none exists.
        target: scope of the claim besides new seeds, such as `this text`.
        rule: name of the registered rule.
        row, outcome, reason: id, outcome and reason of the rule's row that applies.
        supports, contradicts: names of the hypotheses that the verdict supports or contradicts.
        evidence: the facts on which the word and the row rest.
        needed: what would resolve the verdict.
        p_over_studies: `adjusted_p` times the number of studies with primary tests on this test
            text, according to the ledger (a Bonferroni bound). It decides nothing.
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
    """An interaction: does the effect of some arms differ from that of others?

    Attributes:
        word: SAME if the difference is shown to lie inside the margin, else DIFFERS if Holm's p is
            at most alpha; UNRESOLVED, DESCRIPTIVE and INVALID as for a verdict.
        of, than: the arms whose mean effects are compared.
        why_not: why the arms cannot be compared, or "" if they can or the word is INVALID.
        found: the analysed difference on which the word rests.
    """

    name: str
    title: str
    word: Literal["DIFFERS", "SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"]
    of: tuple[str, ...]
    than: tuple[str, ...]
    why_not: str
    found: Interacting = field(repr=False)
