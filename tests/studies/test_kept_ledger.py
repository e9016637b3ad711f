"""The ledger of the kept studies agrees with their records."""

import pytest

from paribus.ledger import Event, events_in, uses
from paribus.results.formats import read_json

from .scripts import HOME

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
LEDGER = HOME / "ledger.jsonl"
FINISHED = sorted(HOME.glob("*/registration.json"))


def most_used(events: list[Event]) -> tuple[str, list[Event]]:
    """Return the digest of the text that most studies opened, and these studies."""
    texts = {event.text.digest: event.text for event in events if event.text}
    opened = {digest: uses(events, [text]) for digest, text in texts.items()}
    return max(opened.items(), key=lambda item: len(item[1]))


def test_it_has_every_kept_study():
    assert {event.study for event in events_in(LEDGER)} >= {p.parent.name for p in FINISHED}


def test_openings_are_those_of_the_records():
    """Counted a second time, from test_part.json and the digests that were registered."""
    tested: dict[str, set[str]] = {}
    held: dict[str, set[str]] = {}
    for file in HOME.glob("*/registration.json"):
        digests = next(iter(read_json(file)["data"].values()))["digests"]
        held.setdefault(digests["validation_text"], set()).add(file.parent.name)
        if (file.parent / "test_part.json").is_file():
            digest = read_json(file.parent / "test_part.json")["digest"]
            tested.setdefault(digest, set()).add(file.parent.name)
    kept = {file.parent.name for file in HOME.glob("*/registration.json")}
    events = [event for event in events_in(LEDGER) if event.study in kept]
    for digest, names in tested.items():
        openings = [e for e in events if e.text and e.text.digest == digest]
        assert {e.study for e in openings if e.text.role == "test"} == names
        assert {e.study for e in openings if e.text.role == "validation"} == held.get(digest, set())
    text, studies = most_used(events)
    of_text = tested.get(text, set()), held.get(text, set())
    assert of_text[0] or of_text[1]
    assert {use.study for use in studies} == of_text[0] | of_text[1]
    assert not of_text[0] & of_text[1]
