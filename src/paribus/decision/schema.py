"""Types of verdicts, shared by the other modules of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from paribus.analysis import Interacting
from paribus.decision.evidence import Evidence
from paribus.decision.word import Word


@dataclass(frozen=True)
class Needed:
    """The seeds or other means that would resolve a verdict.

    Attributes:
        pairs: seed pairs, or runs of each arm; None if more would not help, or it is unknown.
        why_not: the code of why there is no number (`report.cautions` has all sentences); empty if
            there is one, or nothing is left to resolve.
        instead: the code of what reduces the largest part of the error, such as "items", if that is
            not more seeds.
    """

    pairs: int | None = None
    why_not: str = ""
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of the test of a difference on one primary endpoint.

    Attributes:
        metric: the endpoint.
        effect, low, high: the difference in the metric's unit (in logarithms if it is compared as a
            ratio), and its interval of level 1 - alpha by the test that decides.
        p, adjusted_p: of that test, and by Holm's method over the family; None if untested.
        n: seed pairs, or runs of the smaller arm; of an interaction, seeds that all its arms share.
        margin: the registered one.
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
        arm, reference: what is compared with what.
        label: of the endpoint, its name for readers.
        word: what the evidence says of the arm (`decision.word`).
        cost: the problem with the cost of a BETTER arm: "", "not measured", "over" or "not shown".
        target: what the claim is about besides new seeds, such as `this text`.
        rule, row, outcome, reason: the registered rule, and its row that applies.
        supports, contradicts: hypotheses of the study, by name.
        evidence: what the word and the row rest on.
        needed: what would resolve it.
        p_over_studies: `adjusted_p` times the number of studies with primary tests on this test
            text (Bonferroni's bound over them), as far as the ledger knew. It decides nothing.
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
        word: DIFFERS where Holm's p is at most alpha and the difference is not shown to lie inside
            the margin; SAME where it is; UNRESOLVED, DESCRIPTIVE and INVALID as of a verdict.
        of, than: the arms whose mean effects are compared.
        why_not: why its arms cannot be compared; empty if they can, or if it is INVALID.
        found: the analysis that it rests on.
    """

    name: str
    title: str
    word: Literal["DIFFERS", "SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"]
    of: tuple[str, ...]
    than: tuple[str, ...]
    why_not: str
    found: Interacting = field(repr=False)
