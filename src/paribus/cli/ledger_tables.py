"""Tables of a ledger, in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paribus import numbers
from paribus.ledger import Decided, Event, Looked, Opened, OpenedText, TextPart
from paribus.report.table_model import Table

SHOWN = 8  # digits of a digest
TEXT = frozenset({"text", "bytes of its corpus", "since"})


def texts_table(texts: list[OpenedText]) -> Table:
    """Return held-out texts, how many studies tested or only validated on each, and their tests."""
    rows = []
    for one in texts:
        tested = sum(use.is_test for use in one.studies)
        validated, since = len(one.studies) - tested, one.studies[0].time[:10]
        name, place = one.text.digest[:SHOWN], _place(one.text)
        rows.append((name, place, str(tested), str(validated), str(one.tests), since))
    head = ("text", "bytes of its corpus", "tested", "validated", "tests", "since")
    title = "held-out texts, by how many studies, and primary tests on them (overlaps count)"
    return Table("texts", "", head, tuple(rows), TEXT, title=title)


def _place(part: TextPart) -> str:
    if part.start is None:
        return "not known"
    stop = "the end" if part.stop is None else f"{part.stop:,}"
    return f"{part.start:,} to {stop}{f', {part.form}' if part.form else ''}"


def entries_table(events: Sequence[Event]) -> Table:
    """Return entries, a line each."""
    head = ("time", "study", "what")
    rows = [(event.time[:16].replace("T", " "), event.study, _entry(event)) for event in events]
    return Table("entries", "", head, tuple(rows), frozenset(head), title="entries")


def _entry(event: Event) -> str:
    match event:
        case Opened():
            tests = f", {numbers.plural(event.tests, 'test')}" if event.tests else ""
            return f"opens {event.text.role} text {event.text.digest[:SHOWN]}{tests}"
        case Looked():
            return f"takes look {event.look}"
        case Decided():
            words = Counter(word for of in event.words.values() for word in of.values())
            return f"decides: {', '.join(f'{n} {word}' for word, n in words.items())}"
    return "is registered"
