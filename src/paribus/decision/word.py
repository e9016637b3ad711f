"""Verdict labels, such as BETTER, which summarize the evidence independently of the rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from paribus.decision.evidence import Evidence
from paribus.decision.rule import CANNOT, TOO_FEW, Condition, holds_where
from paribus.statistics import DESCRIPTIVE_BELOW

Word = Literal["BETTER", "WORSE", "SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"]


# The exit code of each with `--exit-verdict`: from the best to what needs attention first, as arms
# are summed up in one.
WORDS: dict[Word, int] = {
    "BETTER": 0,
    "SAME": 12,
    "DESCRIPTIVE": 14,
    "UNRESOLVED": 13,
    "WORSE": 11,
    "INVALID": 3,
}

# Of what is printed and good, bad or open; all else is plain, such as interactions that differ.
STYLE_OF = {
    "BETTER": "good",
    "DESCRIPTIVE": "open",
    "UNRESOLVED": "open",
    "WORSE": "bad",
    "INVALID": "bad",
}


class Line(NamedTuple):
    """A row of the table that maps evidence to verdict labels; the first matching row applies.

    Attributes:
        word: verdict label.
        when: description of the condition.
        holds: alternative conditions, as in `Row.holds`; {} always applies.
    """

    word: Word
    when: str
    holds: tuple[Condition, ...] = ({},)


# An arm that is shown to spike in fewer runs may diverge in more.
JUDGED = (
    Line(
        "UNRESOLVED",
        "the arm is shown to cause instability, but its runs that survive are shown to be "
        "better or it diverges in fewer runs; or to cure instability, but they are shown to be "
        "worse or it diverges in more runs",
        (
            {"fix": ("harm",), "quality": ("Q+",)},
            {"fix": ("harm",), "divergence": ("fewer",)},
            {"fix": ("fix",), "quality": ("Q-",)},
            {"fix": ("fix",), "divergence": ("more",)},
        ),
    ),
    Line("WORSE", "the arm is shown to cause instability", ({"fix": ("harm",)},)),
    Line("BETTER", "the arm is shown to cure instability", ({"fix": ("fix",)},)),
    Line("WORSE", "shown to be worse, and not inside the margin", ({"quality": ("Q-",)},)),
    Line("SAME", "inside the margin, significant or not", ({"quality": ("Q0",)},)),
    Line("BETTER", "shown to be better, and not inside the margin", ({"quality": ("Q+",)},)),
    Line("UNRESOLVED", "anything else"),
)
TRUTH = (Line("INVALID", CANNOT.when), Line("DESCRIPTIVE", TOO_FEW.when), *JUDGED)


def word_of(evidence: Evidence) -> Word:
    """Return the verdict label for the evidence."""
    if evidence.invalid:
        return "INVALID"
    if evidence.n < DESCRIPTIVE_BELOW:
        return "DESCRIPTIVE"
    values = evidence.state._asdict()
    return next(line.word for line in JUDGED if holds_where(line.holds, values))


def exit_code(words: Iterable[Word]) -> int:
    """Return the exit code for verdicts, which is that of the label listed last in `WORDS`."""
    codes = set(words)
    return next((code for word, code in reversed(WORDS.items()) if word in codes), 0)
