"""What a decision rule is made of: rows, each with its condition and its words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from paribus.decision.evidence import Evidence

Outcome = Literal["INVALID", "DESCRIPTIVE ONLY", "BASELINE", "IMPROVES", "INCONCLUSIVE", "ADOPT"]


@dataclass(frozen=True)
class Row:
    """A row of a decision table.

    Attributes:
        id: what it is called, in records too.
        when: its condition in words, where no row before it has matched.
        holds: its condition.
        reason: why, in the verdict's sentence.
        lead, why: what the page and the paper say of it. In braces: {arm} and {base} are names,
            {shown} an effect that was shown, {effect} one that was not, {events} counts of events,
            {margin}, {pairs} and {invalid} what they say.
        advice: what follows from it.
        hypothesis: the one of the commissioned study that it speaks to.
    """

    id: str
    outcome: Outcome
    when: str
    holds: Callable[[Evidence], bool]
    reason: str
    lead: str
    why: str
    advice: str
    hypothesis: Literal["H0", "H1a", "H1b"] | None = None


def table(*rows: Row) -> dict[str, Row]:
    """Rows by their id, in the order in which they are tried."""
    return {row.id: row for row in rows}


def first_match(rows: Iterable[Row], evidence: Evidence) -> Row:
    """The first row whose condition holds. A rule is total: its tests show that one always does."""
    return next(row for row in rows if row.holds(evidence))
