"""What a run tells the ledger and what it asks of it: with a trainer that takes no time."""

import json
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.cli import main
from paribus.ledger import Event, events_in
from paribus.results import ResultsFolder, extend, opened_texts
from paribus.study import Study, load_study

from ..build import run_here

TEXT = "c" * 64
TOY = """
from paribus.extend import Declaration, Metric, TestText, TrialRecord
from paribus.rng import stream

class Toy:
    def declare(self, study):
        return Declaration(
            (Metric("loss", "toy loss", "nats", "lower", "evaluation"),), test=TEST
        )

    def run(self, study, trials):
        for arm, seed in trials:
            shift, noise = study.setting(arm).toy["shift"], stream(seed, arm).standard_normal()
            yield (arm, seed), TrialRecord({"loss": 2.0 - shift + 0.01 * noise})
"""
STUDY = """
name = "NAME"
trainer = "toy.py:Toy"
seeds = [1, 2, 3, 4, 5]
endpoints = [{ metric = "loss", primary = true, margin = 0.02 }]
toy = { shift = 0.0 }
[arms.baseline]
[arms.shifted]
set."toy.shift" = 0.012
"""


@pytest.fixture
def make(tmp_path):
    """`make("a", "TestText(...)")`: a study of that name, whose trainer declares that text."""
    opened_texts._warn.cache_clear()

    def made(name: str, test: str = f"TestText('{TEXT}')", text: str = STUDY) -> Study:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "toy.py").write_text(TOY.replace("test=TEST", f"test={test}"))
        (folder / "study.toml").write_text(text.replace("NAME", name))
        return load_study(folder / "study.toml")

    return made


def run(study: Study) -> Path:
    return run_here(study, study.folder / "r").path


def verdict(results: Path) -> list[dict[str, Any]]:
    assert main(["report", "--no-page", str(results)]) == 0
    return json.loads((results / "verdict.json").read_text())["verdicts"]


def reused(results: Path) -> list[str]:
    cautions = [each["cautions"] for each in verdict(results)]
    return [c["text"] for listed in cautions for c in listed if c["code"] == "reused"]


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.study, event.kind) for event in events]


def test_a_second_study_of_a_text_says_so_wherever_it_is_read(make, ledger, monkeypatch, capsys):
    first, second = run(make("a")), run(make("b"))
    assert reused(first) == []
    cautions = reused(second)
    assert len(cautions) == 1
    assert "for 2 studies" in cautions[0] and "'a'" in cautions[0] and "so far: 2" in cautions[0]
    for each in verdict(first):
        assert each["p_over_studies"] == each["adjusted_p"]
    before = verdict(second)
    for each in before:
        assert each["p_over_studies"] == min(1, 2 * each["adjusted_p"])
    # The registered decision is that of the registered p.
    decided = paribus.decide(paribus.analyse(paribus.load_results(second)))
    assert [(v["word"], v["row"]) for v in before] == [(v.word, v.row) for v in decided]
    every = ["opening", "registration"]
    assert sorted(kinds(events_in(ledger))) == [(name, kind) for name in "ab" for kind in every]
    capsys.readouterr()
    assert main(["ledger", "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert stated["entries"] == [event.entry for event in events_in(ledger)]
    assert main(["ledger"]) == 0
    shown = capsys.readouterr().out
    assert TEXT[:8] in shown and all(len(line) <= 80 for line in shown.splitlines()[1:])
    # On another machine, later, without the ledger, or with one that knows more.
    ledger.unlink()
    assert verdict(second) == before
    # What is merely read is nobody's run.
    assert not ledger.exists()
    monkeypatch.setenv("PARIBUS_LEDGER", "")
    assert verdict(second) == before
    assert paribus.verify(second).findings == []
    (second / "ledger.json").write_text("{}")
    assert any("ledger.json" in line for line in paribus.verify(second).findings)


def test_a_study_is_one_study_however_often_it_is_run_and_read(make, ledger):
    study = make("a")
    results = run(study)
    before = ledger.read_bytes()
    run(study)
    verdict(results.rename(results.with_name("moved")))
    assert ledger.read_bytes() == before
    # Looks and stages are of one study, too.
    looks = STUDY.replace("seeds = [1, 2, 3, 4, 5]", "seeds = { looks = [5, 8] }")
    assert "for 2 studies" in reused(run(make("b", text=looks)))[0]
    stages = make("c")
    run(stages)
    extend(stages.folder / "r", 3)
    assert "for 3 studies" in reused(run(stages))[0]
    openings = [e for e in events_in(ledger) if e.kind == "opening" and e.study == "c"]
    assert len(openings) == 1
    assert len({event.registration for event in events_in(ledger)}) == 3


def test_places_in_one_corpus_are_compared(make):
    def text(digest: str, start: int, stop: int) -> str:
        return f"TestText('{digest * 64}', corpus='{'f' * 64}', start={start}, stop={stop})"

    run(make("a", text("1", 90, 100)))
    assert reused(run(make("b", text("2", 80, 90)))) == []
    assert "for 3 studies" in reused(run(make("c", text("3", 89, 100))))[0]


def test_nothing_is_claimed_of_a_text_that_nobody_declares(make, ledger):
    for name in "ab":
        results = run(make(name, "None"))
        assert reused(results) == [] and not (results / "ledger.json").exists()
        registered = json.loads((results / "registration.json").read_text())
        assert "test" not in registered["trainer"]
    assert {each["p_over_studies"] for each in verdict(results)} == {None}
    assert "opening" not in {event.kind for event in events_in(ledger)}


def test_a_ledger_that_cannot_be_written_is_said_once(make, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PARIBUS_LEDGER", str(tmp_path / "file" / "ledger.jsonl"))
    results = run(make("a"))
    warnings = [r.getMessage() for r in caplog.records if "ledger" in r.getMessage()]
    assert len(warnings) == 1 and "record" in warnings[0]
    stated = ResultsFolder(results).read_sealed("ledger.json")
    assert stated["recorded"] is False and "cannot write" in stated["why"]
    assert {each["p_over_studies"] for each in verdict(results)} == {None}
