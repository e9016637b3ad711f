"""Reading while a run writes to the same folder: one state of it, or one line."""

from itertools import count
from pathlib import Path

import pytest

from paribus.errors import ParibusError
from paribus.results import load_results, read


@pytest.fixture
def made(small_study, fabricate):
    return fabricate(small_study(), lambda arm, seed: 2 + seed / 100)


def test_trials_finished_now_are_whole(made, monkeypatch):
    trial = made.finished[-1]
    away = trial.path.parent.parent / "away"
    trial.path.rename(away)
    real, calls = read.root_digest, []

    def digest(folder: Path) -> str:
        found = real(folder)
        if not calls:
            away.rename(trial.path)
        calls.append(found)
        return found

    monkeypatch.setattr(read, "root_digest", digest)
    results = load_results(made.path)
    assert results.finished == made.finished and results.root == made.root
    assert len(calls) > 2
    # One that never rests is said to.
    restless = map(str, count())
    monkeypatch.setattr(read, "root_digest", lambda folder: next(restless))
    with pytest.raises(ParibusError, match="changes while it is read; wait for the run"):
        load_results(made.path)
