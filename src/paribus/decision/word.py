"""The word on one arm and one primary endpoint: what the evidence says, whatever the rule does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from paribus.decision.evidence import Evidence, State
from paribus.statistics import DESCRIPTIVE_BELOW

Word = Literal["BETTER", "WORSE", "SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"]


class Says(NamedTuple):
    """What a word says.

    Attributes:
        style: of the terminal and the page.
        exit_code: with `--exit-verdict`.
    """

    style: Literal["good", "bad", "plain", "open"]
    exit_code: int


# From the best to what needs attention first, as arms are summed up in one exit code.
WORDS: dict[Word, Says] = {
    "BETTER": Says("good", 0),
    "SAME": Says("plain", 12),
    "DESCRIPTIVE": Says("open", 14),
    "UNRESOLVED": Says("open", 13),
    "WORSE": Says("bad", 11),
    "INVALID": Says("bad", 3),
}

# Of what is printed: the words of verdicts, and of interactions that differ, which is neither good
# nor bad.
STYLE_OF: dict[str, str] = {word: says.style for word, says in WORDS.items()} | {"DIFFERS": "plain"}


@dataclass(frozen=True)
class Line:
    """A line of the truth table: its word holds where no line before it does."""

    word: Word
    when: str
    holds: Callable[[Evidence], bool]


TRUTH = (
    Line(
        "INVALID",
        "a trial is missing, a control did not hold, or the registration was changed",
        lambda e: bool(e.invalid),
    ),
    Line(
        "DESCRIPTIVE",
        f"fewer than {DESCRIPTIVE_BELOW} seed pairs, or runs of an arm",
        lambda e: e.n < DESCRIPTIVE_BELOW,
    ),
    Line(
        "UNRESOLVED",
        "the arm is shown to cause instability, but its runs that survive are significantly "
        "better or it diverges in fewer runs; or to cure instability, but they are significantly "
        "worse or it diverges in more runs",
        lambda e: _disagrees(e.state),
    ),
    Line(
        "WORSE",
        "the arm is shown to cause instability",
        lambda e: _harms(e),
    ),
    Line(
        "BETTER",
        "the arm is shown to cure instability",
        lambda e: _cures(e),
    ),
    Line("WORSE", "significantly worse, and not inside the margin", lambda e: _is(e, "Q-")),
    Line("SAME", "inside the margin, significant or not", lambda e: _is(e, "Q0")),
    Line("BETTER", "significantly better, and not inside the margin", lambda e: _is(e, "Q+")),
    Line("UNRESOLVED", "anything else", lambda e: True),
)


def _harms(evidence: Evidence) -> bool:
    return evidence.state.fix == "harm"


def _cures(evidence: Evidence) -> bool:
    return evidence.state.fix == "fix"


def _disagrees(state: State) -> bool:
    """Return whether the rates of events say one thing, and surviving runs or divergence another.

    An arm that is shown to spike in fewer runs may diverge in more.
    """
    harms = state.fix == "harm" and (state.quality == "Q+" or state.divergence == "fewer")
    cures = state.fix == "fix" and (state.quality == "Q-" or state.divergence == "more")
    return harms or cures


def _is(evidence: Evidence, quality: str) -> bool:
    return evidence.state.quality == quality


def rests_on_events(evidence: Evidence) -> bool:
    """Return whether the word follows the rates of events rather than quality."""
    return _harms(evidence) or _cures(evidence)


def word_of(evidence: Evidence) -> Word:
    """Return the word of the first line of `TRUTH` that holds."""
    return next(line.word for line in TRUTH if line.holds(evidence))


def exit_code(words: Iterable[Word]) -> int:
    """Return the exit code of several words: that of the one that stands last in `WORDS`."""
    codes = set(words)
    return next((says.exit_code for word, says in reversed(WORDS.items()) if word in codes), 0)
