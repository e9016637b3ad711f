"""Reading and answering while a run writes to the same folder: one state of it, or one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from paribus.cli import main
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, load_results, read
from paribus.results.store import answering, root_digest
from paribus.study import Study


@pytest.fixture
def made(small_study: Callable[..., Study], fabricate: Callable[..., Results]) -> Results:
    return fabricate(small_study(), lambda arm, seed: 2 + seed / 100)


def test_a_trial_that_is_finished_while_one_reads_is_in_or_out(
    made: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = made.finished[-1]
    away = trial.path.parent.parent / "away"
    trial.path.rename(away)
    real, calls = read.root_lines, []

    def lines(folder: Path) -> list[str]:
        found = real(folder)
        if not calls:
            away.rename(trial.path)
        calls.append(found)
        return found

    monkeypatch.setattr(read, "root_lines", lines)
    results = load_results(made.path)
    assert results.finished == made.finished and results.root == made.root
    assert len(calls) > 2
    # One that never rests is said to.
    restless = map(str, count())
    monkeypatch.setattr(read, "root_lines", lambda folder: [next(restless)])
    with pytest.raises(ParibusError, match="changes while it is read; wait for the run"):
        load_results(made.path)


def test_answers_are_of_what_was_read(made: Results) -> None:
    before = made.root
    made.require_current()
    (made.path / "trials" / "baseline" / "seed-1" / "manifest.json").write_text("{}")
    made.require_current()
    assert made.root == before != root_digest(made.path)
    file = made.path / "registration.json"
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ParibusError, match=r"changed by a run while it was read; nothing was wr"):
        made.require_current()


def test_an_analysis_of_an_earlier_registration_is_not_written(
    made: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def decide(analysis: object) -> list[object]:
        (made.path / "manifest.json").write_text("{}")  # a run seals what it has timed
        return []

    monkeypatch.setattr("paribus.decision.decide", decide)
    assert main(["report", "--no-page", str(made.path)]) == 2
    assert "changed by a run while it was read" in capsys.readouterr().err
    assert not (made.path / "analysis.json").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of folders")
def test_one_answer_is_written_at_a_time(
    made: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paribus.results.store.PATIENCE_SECONDS", 0.0)
    with answering(made.path):
        assert main(["report", "--no-page", str(made.path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "another command has been writing its answer" in said
    with ResultsFolder(made.path).lock():  # a run under way keeps nobody from asking
        assert main(["report", "--no-page", str(made.path)]) == 0
