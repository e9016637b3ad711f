"""What the dry run cannot see of custom code is seen when a trial is trained again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import paribus
from paribus.engine.check import check_arm, repeat_steps
from paribus.engine.data import load_dataset
from paribus.engine.execution.runner import EngineRunner
from paribus.engine.execution.trial.trial import Stack
from paribus.files import remove_folder
from paribus.report.model import build_report
from paribus.report.render import card_text
from paribus.results import ResultsFolder, load_results, settle
from paribus.results.formats import read_json
from paribus.results.registration import read_registration
from paribus.runs.processes import Leaving
from paribus.runs.queue import Task
from paribus.runs.run import ask
from paribus.study import Study
from paribus.verification import verify

from ..build import registered
from ..tools import refused

CPU = torch.device("cpu")

# Each gives the same bits twice within seconds, in one process.
OWN = """
import os, time
from pathlib import Path
from torch import nn

HERE = Path(__file__).parent

class Honest(nn.RMSNorm):
    def __init__(self, model):
        super().__init__(model.d_model)

class Reading(Honest):
    def forward(self, x):
        return super().forward(x) * float((HERE / "scale").read_text())

class Counting(Honest):
    '''Warms up over 1000 calls, which it counts in a file.'''
    def forward(self, x):
        calls = int((HERE / "calls").read_text()) + 1
        (HERE / "calls").write_text(str(calls))
        return super().forward(x) * (0.5 if calls < 1000 else 1)

class OfItsProcess(Honest):
    def forward(self, x):
        return super().forward(x) * (1 + os.getpid() % 9973 * 1e-5)

class OfItsTime(Honest):
    def forward(self, x):
        return super().forward(x) * (1 + time.time() // 100_000 % 9973 * 1e-5)
"""


@pytest.fixture
def study_with(small_study):
    """`study_with("Honest")`: a baseline and an arm `own` that has that class as its last norm."""

    def make(name: str) -> Study:
        study = small_study(
            {"tasks.names": []},
            seeds=[1],
            arms={"baseline": {}, "own": {"set": {"model.modules.final_norm": f"own.py:{name}"}}},
        )
        (study.folder / "own.py").write_text(OWN)
        (study.folder / "scale").write_text("1.5")
        (study.folder / "calls").write_text("0")
        return study

    return make


def train(study: Study, *trials: tuple[str, int]) -> ResultsFolder:
    """Train these side by side, in this process."""
    folder = ResultsFolder(study.folder / "r")
    dataset = load_dataset(study.data, study.folder)
    settle(folder, study, registered(study, dict.fromkeys(study.arms, dataset.record)))
    stack = Stack(study, trials, folder, dataset, CPU, checkpoint_seconds=60)
    stack.run(lambda *_: None, Leaving())
    return folder


def again(study: Study, folder: ResultsFolder, arm: str, seed: int = 1) -> SimpleNamespace:
    dataset = load_dataset(study.data, study.folder)
    answer = repeat_steps(study, folder.trial(arm, seed), dataset, CPU, steps=3)
    return SimpleNamespace(**{"elsewhere": []} | answer)


def another_scale(study: Study, patch: pytest.MonkeyPatch) -> None:
    (study.folder / "scale").write_text("1.25")


def another_day(study: Study, patch: pytest.MonkeyPatch) -> None:
    now = time.time()
    patch.setattr("time.time", lambda: now + 864_000)


@pytest.mark.parametrize(
    ("name", "later"),
    [("Reading", another_scale), ("Counting", lambda *_: None), ("OfItsTime", another_day)],
)
def test_what_passes_the_dry_run_is_caught(name, later, study_with, monkeypatch):
    study = study_with(name)
    check_arm(study, "own", load_dataset(study.data, study.folder), CPU, 1)
    assert int((study.folder / "calls").read_text()) < 900
    (study.folder / "calls").write_text("996")  # the warm-up ends in the fourth step
    folder = train(study, ("own", 1))
    later(study, monkeypatch)
    repetition = again(study, folder, "own")
    assert repetition.elsewhere == []
    assert repetition.differs_at == 1
    assert repetition.differs.startswith("train_loss")


def test_a_trial_is_trained_again_in_its_stack(small_study):
    study = small_study({"tasks.names": []}, seeds=[1, 2, 3])
    folder = train(study, *(("layernorm", seed) for seed in study.seeds))
    assert again(study, folder, "layernorm", 2).differs_at is None
    trial = folder.trial("layernorm", 2)
    table = trial.read_columns("steps.parquet")
    columns = {name: table[name].to_numpy().copy() for name in table.column_names}
    columns["grad_norm"][1] *= 1 + 1e-6
    trial.write_columns("steps.parquet", columns)
    repetition = again(study, folder, "layernorm", 2)
    assert repetition.differs_at == 2 and "grad_norm" in repetition.differs
    elsewhere = trial.read_json("environment.json") | {"processor": "another"}
    trial.write_json("environment.json", elsewhere)
    assert again(study, folder, "layernorm", 2).elsewhere == ["processor"]


class Here:
    """The queue of a run that trains again in this process; what it asks for is kept."""

    def __init__(self, study: Study) -> None:
        self.study, self.asked = study, list[str]()

    def ask(self, tasks: list[Task]) -> list[dict[str, Any]]:
        folder = ResultsFolder(self.study.folder / "r")
        self.asked += [task.arguments["arm"] for task in tasks]
        return [vars(again(self.study, folder, task.arguments["arm"])) for task in tasks]

    def retrain(self, folder: ResultsFolder) -> None:
        """Train again what is registered and was not yet."""
        context: Any = SimpleNamespace(queue=self, order=SimpleNamespace(settings={}), say=print)
        EngineRunner(context).after_trials(self.study, folder)


def states(folder: ResultsFolder) -> dict[str, str]:
    controls = load_results(folder.path).controls
    return {c.arm: c.state for c in controls if c.name == "repeatable"}


def test_the_control_follows_the_record(study_with):
    study = study_with("Reading")
    folder = train(study, ("own", 1))
    train(study, ("baseline", 1))
    assert read_registration(folder)["repeated"] == {"own": {"seed": 1, "steps": 3}}
    assert states(folder) == {"own": "not proven"}
    here = Here(study)
    here.retrain(folder)
    assert here.asked == ["own"]
    assert states(folder) == {"own": "held"}
    here.retrain(folder)
    assert here.asked == ["own"]  # once is enough

    # Of a trial that was trained anew nothing is known.
    remove_folder(folder.trial("own", 1).path)
    train(study, ("own", 1))
    assert states(folder) == {"own": "held"}  # to the same bytes
    (study.folder / "scale").write_text("1.25")
    (folder.trial("own", 1).path / "manifest.json").unlink()
    with refused("changed"):
        train(study, ("own", 1))
    remove_folder(folder.trial("own", 1).path)
    train(study, ("own", 1))
    assert states(folder) == {"own": "not proven"}

    (study.folder / "scale").write_text("1.5")
    here.retrain(folder)
    analysis = paribus.analyse(load_results(folder.path))
    assert analysis.contrasts[0].why_not.endswith(" repeatable")
    verdicts = paribus.decide(analysis)
    assert verdicts[0].outcome == "INVALID"
    card = " ".join(card_text(build_report(verdicts)).split())
    assert "1 of 3" in card and "own/seed-1" in card

    repeated = folder.path / "repeated.json"
    repeated.write_bytes(repeated.read_bytes().replace(b"own", b"now"))
    with pytest.raises(paribus.errors.ParibusError, match=r"repeated\.json"):
        _ = load_results(folder.path).controls
    assert any("repeated.json" in line for line in verify(folder.path).findings)


def test_it_is_a_process_of_its_own(study_with):
    study = study_with("OfItsProcess")
    folder = train(study, ("own", 1))
    home = str(folder.path.absolute())
    task = Task("again", "again", "", home, {"arm": "own", "seed": 1, "steps": 3})
    (answer,) = ask(study, folder.path, [task], device="cpu")
    assert answer["differs_at"] == 1


def test_honest_arms_are_held_and_others_not_trained_again(odd_arms):
    custom = {"quiet", "masked", "no-attention"}
    repeated = read_json(odd_arms.path / "repeated.json")
    assert repeated.keys() == custom
    assert all(record["differs_at"] is None for record in repeated.values())
    assert states(ResultsFolder(odd_arms.path)) == dict.fromkeys(custom, "held")
