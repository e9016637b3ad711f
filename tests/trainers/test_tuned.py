"""Tuning with a trainer of the user's own: choices and records against what is known of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.analysis import analyse
from paribus.decision import decide
from paribus.results import ResultsFolder, load_results
from paribus.runs.progress import Progress
from paribus.study import Study
from paribus.verification import verify

from ..tools import refused
from .drawn import loss

pytestmark = pytest.mark.usefixtures("one_process")

RATES = [1.0, 2.0, 4.0, 8.0, 16.0]
EFFECTS = {"baseline": 0.0, "near": 0.005, "far": 0.5}
STUDY: dict[str, Any] = {
    "name": "drawn",
    "trainer": "drawn.py:Drawn",
    "seeds": [3, 5, 8, 13, 21, 34],
    "endpoints": [{"metric": "loss", "primary": True, "margin": 0.01}],
    "drawn": {"rate": 1.0, "by": 0.0},
    "arms": {
        "baseline": {},
        "near": {"set": {"drawn.by": EFFECTS["near"]}},
        "far": {"set": {"drawn.by": EFFECTS["far"]}},
    },
    "inference": {"choice": "fixed"},  # the best candidate, not the vertex
    "tuning": {"seeds": [101, 102], "grid": {"drawn.rate": RATES}},
}


def study(**changed: Any) -> Study:
    return paribus.load_study(STUDY | changed)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PARIBUS_LEDGER", "")
        shutil.copy(Path(__file__).with_name("drawn.py"), folder)
        return paribus.run(study(), folder / "r")


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARIBUS_LEDGER", "")
    shutil.copy(Path(__file__).with_name("drawn.py"), tmp_path)
    return tmp_path


@pytest.fixture
def copy(made, here):
    return shutil.copytree(made.path, here / "copy")


def test_each_arm_is_trained_at_its_best(made):
    known = {
        arm: min(RATES, key=lambda rate: sum(loss(arm, rate, seed, by) for seed in (101, 102)))
        for arm, by in EFFECTS.items()
    }
    assert {arm: of["drawn.rate"] for arm, of in made.study.tuning.chosen.items()} == known
    assert len(set(known.values())) > 1, "else it would not show"
    for (arm, seed), trial in made.trials.items():
        assert trial["setting"]["drawn"]["rate"] == known[arm]
        (score,) = (
            row for row in made.scores.to_pylist() if (row["arm"], row["seed"]) == (arm, seed)
        )
        assert score["loss"] == loss(arm, known[arm], seed, EFFECTS[arm])
    analysis = analyse(made)
    assert analysis.unregistered == ""
    held = {(one.name, one.arm): one.state for one in analysis.controls}
    assert held["setting", "near"] == held["setting", "far"] == "held"
    json.dumps(analysis.to_dict(), allow_nan=False)
    assert verify(made.path).findings == []


def test_a_run_that_was_killed_in_its_tuning_comes_to_the_same(made, here):
    def stop(progress: Progress) -> None:
        if progress.n_finished >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paribus.run(study(), "again", watch=stop)
    again = paribus.run(study(), "again")
    assert again.study.tuning == made.study.tuning
    assert analyse(again).to_dict() == analyse(made).to_dict()
    lines = Path("trained.txt").read_text().splitlines()
    assert len(set(lines)) == 3 * (2 * 5 + 6)
    paribus.run(study(), "again")
    assert Path("trained.txt").read_text().splitlines() == lines


def test_a_choice_that_was_edited_is_invalid(copy):
    path, folder = copy / "study.json", ResultsFolder(copy)
    table, record = json.loads(path.read_text()), folder.read_sealed("tuning.json")
    values = table["tuning"]["chosen"]["near"]
    rate = next(rate for rate in RATES if rate != values["drawn.rate"])
    values["drawn.rate"] = record["chosen"]["near"]["values"]["drawn.rate"] = rate
    path.write_text(json.dumps(table))
    folder.seal("tuning.json", record)
    with refused("changed"):
        load_results(copy)
    for seed in STUDY["seeds"]:
        trial = folder.trial("near", seed)
        about = json.loads((trial.path / "trial.json").read_text())
        about["setting"]["drawn"]["rate"] = rate
        trial.write_json("trial.json", about)
        trial.finish(["trial.json", "evaluation.json"])
    results = load_results(copy)  # all seals are right
    words = {one.arm: one.word for one in decide(analyse(results))}
    assert words == {"near": "INVALID", "far": "INVALID"}
    assert any("tuning.json" in finding for finding in verify(copy).findings)


def test_without_its_tuning_trials_nothing_is_chosen(copy):
    shutil.rmtree(copy / "tuning")
    unregistered = analyse(load_results(copy)).unregistered
    assert "missing" in unregistered and unregistered in verify(copy).findings
