"""A run that tunes: the trials come first, survive an interruption, and choose what is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.analysis import tuning_rounds
from paribus.errors import ParibusError
from paribus.execution import Progress
from paribus.results import Results, ResultsFolder, load_results
from paribus.study import Study, tuning_study
from paribus.verification import verify

from ..conftest import studies_in

Maker = Callable[..., Study]
RATE = "training.optimizer.learning_rate"
TABLES: dict[str, Any] = {
    "arms": {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
    "tasks": {"names": []},
    "seeds": [1],
    "tuning": {"seeds": [101], "grid": {RATE: [1e-4, 1e-2]}, "iterations": 6},
}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Tuned with two candidates side by side, then trained; interrupted once on the way."""
    folder = tmp_path_factory.mktemp("tuned")
    study = studies_in(folder)(**TABLES)

    def interrupt(progress: Progress) -> None:
        if progress.n_finished == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paribus.run(study, folder / "r", workers=1, stack=2, watch=interrupt)
    assert not (folder / "r" / "tuning.json").exists()
    begun = load_results(folder / "r" / "tuning" / "1")
    assert (len(begun.finished), len(begun.unfinished)) == (2, 2)
    return paribus.run(study, folder / "r", workers=1, stack=2)


def test_what_was_chosen_is_what_is_trained(tuned: Results) -> None:
    record = ResultsFolder(tuned.path).read_tuning()
    assert len(record["trials"]) == 4
    for arm, one in record["chosen"].items():
        rate = tuned.trials[arm, 1]["setting"]["training"]["optimizer"]["learning_rate"]
        assert rate == one["values"][RATE] == 1e-2
        assert tuned.trials[arm, 1]["iterations"] == 8
    assert {trial["iterations"] for trial in tuning_rounds(tuned.path)[0].trials.values()} == {6}
    assert verify(tuned.path).findings == ()


def test_the_plan_was_registered_before_any_tuning_trial(tuned: Results) -> None:
    registered = json.loads((tuned.path / "registration.json").read_text())
    assert registered["number"] == 1
    assert registered["tuning"]["candidates"] == [{RATE: 1e-4}, {RATE: 1e-2}]
    assert registered["tuning"]["seeds"] == [101]
    assert registered["metrics"]["validation_loss"]["better"] == "lower"
    of_round = json.loads((tuned.path / "tuning" / "1" / "registration.json").read_text())
    assert registered["registered_at"] <= of_round["registered_at"]


def test_stacked_tuning_trials_are_those_trained_alone(tuned: Results, tmp_path: Path) -> None:
    study = studies_in(tmp_path)(**TABLES)
    assert study.tuning is not None
    alone = paribus.run(
        tuning_study(study, study.tuning.candidates), tmp_path / "alone", workers=1, stack=1
    )
    stacked = {
        (row["arm"], row["seed"]): row for row in tuning_rounds(tuned.path)[0].scores.to_pylist()
    }
    for row in alone.scores.to_pylist():
        other = stacked[row["arm"], row["seed"]]
        assert row["validation_loss"] == pytest.approx(other["validation_loss"], abs=1e-5)


def test_a_metric_that_has_no_better_cannot_choose(small_study: Maker, tmp_path: Path) -> None:
    study = small_study(**TABLES | {"tuning": TABLES["tuning"] | {"select": "grad_norm"}})
    with pytest.raises(ParibusError, match="cannot choose among values"):
        paribus.run(study, tmp_path / "r", workers=1)
    assert not (tmp_path / "r").exists()
