"""The ledger of the kept studies: it verifies, and says what their records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from paribus.cli import main
from paribus.ledger import Chain, Event, Opened, entry_digest, events_in, plain, texts_of
from paribus.results.formats import read_json

from .scripts import HOME, script

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
LEDGER = HOME / "ledger.jsonl"


def untimed(event: Event) -> str:
    """All of it but when, which records of the first studies do not say."""
    return entry_digest(plain(event) | {"time": ""})


def test_it_verifies_and_has_every_kept_study() -> None:
    assert Chain(LEDGER).verify() == []
    fresh = script("ledger").events_of_kept()
    assert set(map(untimed, fresh)) <= set(map(untimed, events_in(LEDGER)))
    assert {event.study for event in fresh} >= {p.parent.name for p in HOME.glob("*/kept.json")}


def test_openings_are_those_of_the_records() -> None:
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
        openings = [e for e in events if isinstance(e, Opened) and e.text.digest == digest]
        assert {e.study for e in openings if e.text.role == "test"} == names
        assert {e.study for e in openings if e.text.role == "validation"} == held.get(digest, set())
    most = texts_of(events)[0]
    of_text = tested[most.text.digest], held[most.text.digest]
    assert {use.study for use in most.studies} == of_text[0] | of_text[1]
    assert not of_text[0] & of_text[1]


def test_the_readme_says_the_same() -> None:
    readme = (HOME / "README.md").read_text()
    assert script("ledger").with_texts(readme, events_in(LEDGER)) == readme
    most = texts_of(events_in(LEDGER))[0]
    told = " ".join(readme.split())
    assert f"All {len(most.studies)} make {most.tests} primary tests".lower() in told.lower()


def test_it_is_joined_with_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, whole = tmp_path / "own.jsonl", tmp_path / "whole.jsonl"
    entries = Chain(LEDGER).entries()
    Chain(own).write(entries[::2])
    assert main(["ledger", "merge", str(own), str(LEDGER), "-o", str(whole)]) == 0
    assert whole.read_bytes() == LEDGER.read_bytes()
    assert main(["ledger", "verify", str(whole)]) == 0
    capsys.readouterr()
    assert main(["ledger", "merge", str(own), str(own), "-o", str(whole)]) == 2
    assert "is there already" in capsys.readouterr().err
    whole.write_bytes(whole.read_bytes().replace(b"embedding-norm-kjv", b"embedding-norm-kjw", 1))
    assert main(["ledger", "verify", str(whole)]) == 3
    assert main(["ledger", "merge", str(own), str(whole), "-o", str(own)]) == 2
    assert Chain(own).entries() == entries[::2]
