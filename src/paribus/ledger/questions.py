"""Who opened a text before: what a ledger is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paribus.ledger.events import Event, Opened, TextPart


def overlap(one: TextPart, other: TextPart) -> bool:
    """Return whether two parts of texts have bytes in common, or can have.

    The same text is the same wherever it comes from. Of one corpus, places decide. Where it was
    deduplicated in one of the two alone, a byte lies there no later than in the whole: only what
    ends before the other begins is surely apart from it.
    """
    if one.digest == other.digest:
        return True
    if not one.corpus or one.corpus != other.corpus or one.start is None or other.start is None:
        return False
    if one.form == other.form:
        first, second = sorted((one, other), key=lambda part: part.start or 0)
        return (first.stop is None or (second.start or 0) < first.stop) and not (
            _is_empty(one) or _is_empty(other)
        )
    whole = [part for part in (one, other) if not part.form]
    if len(whole) == 1:
        rest = other if whole[0] is one else one
        stop = whole[0].stop
        return stop is None or rest.start is None or stop > rest.start
    return True


def _is_empty(part: TextPart) -> bool:
    return part.start == part.stop


@dataclass(frozen=True)
class Use:
    """What one study did with a text, or with a part of it.

    Attributes:
        time: when it first saw scores on it.
        is_test: whether it was its test part; else validation text.
        tests: primary tests that it makes on it.
    """

    registration: str
    study: str
    time: str
    is_test: bool
    tests: int


def uses(events: Iterable[Event], parts: Sequence[TextPart], apart: str = "") -> list[Use]:
    """Return which studies opened a text that has bytes in common with one of `parts`, the first
    before the others; one for each study, by its registration, and none for `apart`."""
    found: dict[str, Use] = {}
    for event in events:
        if not isinstance(event, Opened) or event.registration == apart:
            continue
        if not any(overlap(event.text, part) for part in parts):
            continue
        is_test, before = event.text.role == "test", found.get(event.registration)
        found[event.registration] = Use(
            event.registration,
            event.study,
            min(event.time, before.time) if before else event.time,
            is_test or bool(before and before.is_test),
            max(event.tests, before.tests if before else 0),
        )
    return sorted(found.values(), key=lambda use: use.time)


@dataclass(frozen=True)
class OpenedText:
    """A held-out text that some study opened.

    Attributes:
        text: the part; of what is the same text in two roles, as a test part.
        studies: those that opened it, or a text that has bytes in common with it.
    """

    text: TextPart
    studies: tuple[Use, ...]

    @property
    def tests(self) -> int:
        """Primary tests that these studies make on it."""
        return sum(use.tests for use in self.studies)


def texts_of(events: Sequence[Event]) -> list[OpenedText]:
    """Return every text that was opened, the one of the most studies first."""
    parts: dict[str, TextPart] = {}
    for event in events:
        if isinstance(event, Opened):
            there = parts.get(event.text.digest)
            if there is None or (there.role, event.text.role) == ("validation", "test"):
                parts[event.text.digest] = event.text
    found = [OpenedText(part, tuple(uses(events, [part]))) for part in parts.values()]
    return sorted(found, key=lambda one: (-len(one.studies), one.text.digest))
