"""From the set of all verdicts on a treatment to advice: rules that are total over what can come
out, first match wins.

What they read is a `Record`: in which studies a treatment was worse, better, not different by more
than the margin, or unresolved, endpoint by endpoint; and what it did to stability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paribus.report.paper.judged import Judged, Stability, State

Kind = Literal["leave out", "use", "no difference", "depends", "undecided"]
KINDS: dict[Kind, str] = {
    "leave out": "When to leave it out",
    "use": "When to use it",
    "no difference": "What makes no difference worth having",
    "depends": "What depends on the setting",
    "undecided": "What is not decided",
}


@dataclass(frozen=True)
class Record:
    """What all studies found of one treatment, and nothing of what could not be judged.

    Attributes:
        quality: the states that it had on any judged endpoint.
        stability: what it did to training.
    """

    quality: frozenset[State]
    stability: frozenset[Stability]

    @classmethod
    def of(cls, found: list[Judged]) -> Record:
        """Of these verdicts."""
        valid = [one for one in found if one.state not in ("invalid", "described")]
        return cls(frozenset(one.state for one in valid), frozenset(one.stability for one in valid))


@dataclass(frozen=True)
class Advice:
    """A rule: where it holds, what kind of advice it is, and the sentence that says it.

    Attributes:
        does: what to do, as a cell of a table has room for.
    """

    kind: Kind
    holds: Callable[[Record], bool]
    says: str
    does: str


def _has(record: Record, *states: State) -> bool:
    return bool(record.quality & set(states))


RULES: tuple[Advice, ...] = (
    Advice(
        "undecided",
        lambda r: not r.quality,
        "No study here could judge it: what is reported of it is a description.",
        "decide nothing on it",
    ),
    Advice(
        "depends",
        lambda r: {"cured", "destabilised"} <= r.stability,
        "It cures instability in one setting and causes it in another: use it in neither before "
        "the setting that is meant was tested.",
        "test it where it is meant",
    ),
    Advice(
        "leave out",
        lambda r: "destabilised" in r.stability,
        "It destabilises training: do not use it in such settings.",
        "do not use it",
    ),
    Advice(
        "depends",
        lambda r: "cured" in r.stability and _has(r, "harm"),
        "It cures instability at a cost in quality: use it only where training fails without it, "
        "and look for a cure that costs less.",
        "use it only where training fails without it",
    ),
    Advice(
        "use",
        lambda r: "cured" in r.stability and r.quality <= {"gain", "none"},
        "It cures instability, and no cost in quality was found: use it where training is "
        "unstable without it.",
        "use it where training is unstable",
    ),
    Advice(
        "depends",
        lambda r: "cured" in r.stability,
        "It cures instability, and what that costs is not resolved: use it only where training "
        "fails without it.",
        "use it only where training fails without it",
    ),
    Advice(
        "depends",
        lambda r: "rarer" in r.stability,
        "It makes failures of training rarer where it is unstable, and does not end them: use it "
        "only where training fails without it, and look for a cure.",
        "use it only where training fails without it",
    ),
    Advice(
        "depends",
        lambda r: _has(r, "harm") and _has(r, "gain"),
        "Its sign depends on the setting or the endpoint: do not use it by default; test it in the "
        "setting that is meant, with each arm at its best learning rate.",
        "test it where it is meant",
    ),
    Advice(
        "leave out",
        lambda r: _has(r, "harm") and _has(r, "none"),
        "It costs quality in some of these settings, makes no difference worth having in others, "
        "and was not shown to cure anything: leave it out in settings like the former.",
        "leave it out",
    ),
    Advice(
        "leave out",
        lambda r: _has(r, "harm"),
        "It costs quality where this was resolved, and was not shown to cure anything: leave it "
        "out in settings like those.",
        "leave it out",
    ),
    Advice(
        "use",
        lambda r: _has(r, "gain") and not _has(r, "open"),
        "It improves quality, or changes nothing worth having, wherever it was judged: it is worth "
        "using in settings like these, and a study of its own elsewhere.",
        "use it",
    ),
    Advice(
        "depends",
        lambda r: _has(r, "gain"),
        "It improves quality on some endpoint, and is unresolved on others or elsewhere: use it "
        "where it improves what counts, and test it elsewhere.",
        "worth a test of its own where the baseline is stable",
    ),
    Advice(
        "no difference",
        lambda r: r.quality == {"none"},
        "It makes no difference worth having: choose on other grounds.",
        "choose on other grounds",
    ),
    Advice(
        "undecided",
        lambda r: _has(r, "none"),
        "It makes no difference worth having where this was resolved, and is open on other "
        "endpoints or elsewhere: choose on other grounds until it is resolved.",
        "choose on other grounds",
    ),
    Advice(
        "undecided",
        lambda r: r.stability == {"not cured"},
        "It was tried where training is unstable, and no cure was shown: do not count on it as "
        "one.",
        "do not count on it as a cure",
    ),
    Advice(
        "undecided",
        lambda r: True,
        "No effect was shown and none was excluded: prefer neither on this evidence.",
        "prefer neither on this evidence",
    ),
)


def advice_on(record: Record) -> Advice:
    """The first rule that holds; the last one always does."""
    return next(rule for rule in RULES if rule.holds(record))
