"""What rules are made of: states of the evidence, outcomes, and rows with conditions and words."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from paribus.decision.evidence import (
    Benefit,
    Budget,
    Divergence,
    Elsewhere,
    Evidence,
    Fix,
    Quality,
)
from paribus.errors import nearest


class Stated(NamedTuple):
    """A hypothesis of the commissioned study.

    Attributes:
        words: what it says.
        metric: the endpoint that it is stated of, and no other; None where it is on stability,
            which is the same whatever endpoint is judged.
        of: that endpoint as the hypothesis has it.
    """

    words: str
    metric: str | None = None
    of: str = ""


_ACCURACY = ("macro_accuracy", "zero- and few-shot accuracy")
HYPOTHESES: dict[str, Stated] = {
    "H0": Stated(
        "normalising embeddings changes nothing worth having where training is stable without it",
        *_ACCURACY,
    ),
    "H1a": Stated("it costs quality although it smooths training", *_ACCURACY),
    "H1b": Stated(
        "where training is unstable without it, it cures that, perhaps at some cost",
    ),
}
# What more seeds would have to show: an effect or its absence, that an arm is not worse, a cure of
# instability or that it is caused, that a cost is within its budget, or the benefit.
Open = Literal["", "quality", "not worse", "cure", "harm", "cost", "benefit"]

MOST_TEXT = 1_000  # characters of a row's words
# Outcomes that say that the arm has an effect.
CLAIMING = ("ADOPT", "IMPROVES", "DIFFERENT")
ID = re.compile(r"[0-9A-Za-z-]{1,8}")


@dataclass(frozen=True)
class Outcome:
    """What an outcome is called in sentences.

    Attributes:
        lead: on the page and in the paper.
        opening: in the verdict's sentence.
        several: of some contrasts among others: "2 keep the baseline".
        style: of the terminal and the page: "good", "bad", "plain" or "open".
    """

    lead: str
    opening: str
    several: str
    style: Literal["good", "bad", "plain", "open"]


OUTCOMES = {
    "ADOPT": Outcome("Adopt {arm}", "Adopt {arm} in place of {base}", "adopt the arm", "good"),
    "IMPROVES": Outcome(
        "Keep {base}",
        "{arm} improves on {base}, which is kept all the same",
        "improve on what is kept all the same",
        "good",
    ),
    "EQUIVALENT": Outcome(
        "Equivalent", "{arm} and {base} are equivalent", "are equivalent", "good"
    ),
    "BASELINE": Outcome(
        "Keep {base}", "Keep {base} rather than {arm}", "keep the baseline", "plain"
    ),
    "NO EFFECT": Outcome(
        "Keep {base}", "{arm} makes no difference to {base} worth having", "show no effect", "plain"
    ),
    "DIFFERENT": Outcome("Different", "{arm} and {base} differ", "differ", "plain"),
    "REJECT": Outcome("Reject {arm}", "Reject {arm} and keep {base}", "reject the arm", "plain"),
    "INCONCLUSIVE": Outcome(
        "Undecided", "{arm} against {base} is not resolved", "are undecided", "open"
    ),
    "DESCRIPTIVE ONLY": Outcome(
        "No verdict", "{arm} against {base} is only described", "are described only", "open"
    ),
    "INVALID": Outcome(
        "No verdict", "{arm} against {base} cannot be judged", "cannot be judged", "bad"
    ),
}
UNJUDGED = ("INVALID", "DESCRIPTIVE ONLY")  # outcomes without a judgement


class State(NamedTuple):
    """What a rule can see of the evidence on one contrast and one endpoint."""

    quality: Quality
    not_worse: bool
    baseline_stable: bool
    fix: Fix
    collapse: bool
    budget: Budget
    benefit: Benefit
    divergence: Divergence
    elsewhere: Elsewhere

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self._asdict().items())


def states() -> Iterator[State]:
    """Every state there is, in one order."""
    truth = (True, False)
    return itertools.starmap(
        State,
        itertools.product(
            get_args(Quality), truth, truth, get_args(Fix), truth, get_args(Budget),
            get_args(Benefit), get_args(Divergence), get_args(Elsewhere),
        ),
    )  # fmt: skip


def state_of(evidence: Evidence) -> State:
    """The state that the evidence is in: what alone rules may read."""
    return State(*(getattr(evidence, name) for name in State._fields))


def _never(state: State) -> bool:
    """The condition of a row that is read from a registered table."""
    return False


# What the words of a row may name, in braces.
WORDS = frozenset(
    {
        *("arm", "base", "invalid", "pairs", "effect", "shown", "events", "threshold", "margin"),
        *("benefit", "metric", "elsewhere"),
    }
)


@dataclass(frozen=True)
class Row:
    """A row of a decision table.

    Attributes:
        id: what it is called, in records too.
        outcome: one of OUTCOMES.
        when: its condition in words, where no row before it has matched.
        holds: its condition.
        reason: why, in the verdict's sentence.
        why: what the page and the paper say of it. In braces: {arm} and {base} are names, {metric}
            what is judged, {shown} an effect that was shown, {effect} one that was not, {events}
            counts of events, {threshold} that of instability, {benefit} what the registered benefit
            came to, {elsewhere} a loss on other primary endpoints, {margin}, {pairs} and {invalid}
            what they say.
        advice: what follows from it.
        open: of an inconclusive one, what is missing.
        claims: whether it claims an effect of the arm, which a study of nothing counts.
        hypothesis: the one of the commissioned study that it speaks to, where the endpoint is the
            one that the hypothesis is stated of.
    """

    id: str
    outcome: str
    when: str
    reason: str
    why: str
    advice: str
    holds: Callable[[State], bool] = field(default=_never, compare=False, repr=False)
    open: Open = ""
    claims: bool = True
    hypothesis: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not ID.fullmatch(self.id):
            raise ValueError(f"row {self.id!r:.20}: an id is a few letters and digits")
        for name in ("when", "reason", "why", "advice"):
            require_line(getattr(self, name), f"row {self.id}: {name}")
        if self.outcome not in OUTCOMES:
            raise ValueError(f"row {self.id}: outcome {self.outcome!r:.40}: known: {_known()}")
        for name, known in (("open", get_args(Open)), ("hypothesis", (None, *HYPOTHESES))):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"row {self.id}: {name} {value!r:.40} is none of {known}")
        if not isinstance(self.claims, bool):
            raise ValueError(f"row {self.id}: claims is true or false")
        if self.outcome in CLAIMING and not self.claims:
            raise ValueError(
                f"row {self.id}: {self.outcome} claims an effect of the arm: claims = False is no "
                "choice here"
            )
        if self.open and self.outcome != "INCONCLUSIVE":
            raise ValueError(f"row {self.id}: {self.outcome} has nothing open: leave open out")
        require_braces(self.why, WORDS, f"row {self.id}: why")

    def met(self, state: State) -> bool:
        """Whether its condition holds. Raises ValueError where it says neither True nor False."""
        answer = self.holds(state)
        if not isinstance(answer, bool):
            raise ValueError(
                f"row {self.id}: its condition gives {answer!r:.40} where {state}; it must give "
                "True or False"
            )
        return answer

    def speaks_to(self, metric: str) -> str | None:
        """The hypothesis that it speaks to where `metric` is judged; None where it speaks to none.

        H0 and H1a are stated of accuracy over tasks, and a verdict on another endpoint is on
        neither.
        """
        if self.hypothesis is None:
            return None
        return self.hypothesis if HYPOTHESES[self.hypothesis].metric in (None, metric) else None

    @property
    def record(self) -> dict[str, Any]:
        """Its words, as a registration holds them."""
        kept = ("id", "outcome", "when", "reason", "why", "advice", "open", "claims", "hypothesis")
        return {name: getattr(self, name) for name in kept}


def _known() -> str:
    return ", ".join(OUTCOMES)


def require_line(text: object, where: str) -> None:
    """Raise ValueError where `text` is not one printable line that is not too long."""
    if not isinstance(text, str) or not 0 < len(text) <= MOST_TEXT or not text.isprintable():
        raise ValueError(f"{where} is a line of 1 to {MOST_TEXT} characters")


def require_braces(text: str, names: Collection[str], where: str) -> None:
    """Raise ValueError where `text`, which is filled in, names something else or formats it."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in names or spec or conversion):
            raise ValueError(f"{where} names {{{name}}}: {nearest(name, names)}")
