"""A stack that is interrupted anywhere goes on to the same bytes, or says why it starts again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.execution.trial import trial
from paribus.engine.execution.trial.stacks import (
    StackCheckpoints,
    begun_stacks,
    plan_stacks,
    read_checkpoint,
    recorded_size,
)
from paribus.engine.execution.trial.trial import Stack
from paribus.files import remove_folder
from paribus.results import ResultsFolder
from paribus.results.software import differences
from paribus.results.trial_folder import CANONICAL
from paribus.runs.processes import Leaving, Left
from paribus.study import Study

from ..conftest import studies_in
from ..tools import refused

TRIALS = (("baseline", 1), ("baseline", 2), ("baseline", 3))
LEFT_AT = 5
WANTED = {
    "tasks.names": [],
    "seeds": [1, 2, 3],
    "evaluation.every": 3,
    "training.dropout": 0.1,
}


class Case:
    """A stack of three in a folder of its own, trained in pieces."""

    def __init__(self, study: Study, dataset: Dataset, path: Path) -> None:
        self.study, self.dataset = study, dataset
        self.folder = ResultsFolder(path)
        self.folder.create(study)
        self.from_steps: list[int] = []

    def train(
        self, leave_at: int | None = None, *, trials: Any = TRIALS, seconds: float = 0
    ) -> bool:
        leaving = Leaving()

        def on_progress(t: int, losses: list[float]) -> None:
            leaving.asked = leaving.asked or t == leave_at

        stack = self.stack(trials, seconds)
        self.from_steps.append(stack.trainer.t)
        try:
            stack.run(on_progress, leaving)
        except Left:
            return False
        return True

    def stack(self, trials: Any, seconds: float = 60) -> Stack:
        device = torch.device("cpu")
        return Stack(
            self.study, trials, self.folder, self.dataset, device, checkpoint_seconds=seconds
        )

    @property
    def newest(self) -> list[Path]:
        return sorted(StackCheckpoints(self.folder.path, TRIALS).path.glob("step-*"))[::-1]

    def records(self) -> dict[str, bytes]:
        return {
            f"{arm}/{seed}/{name}": (self.folder.trial(arm, seed).path / name).read_bytes()
            for arm, seed in TRIALS
            for name in CANONICAL
        }


@pytest.fixture
def case(small_study, small_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "PROGRESS_SECONDS", 0)
    return Case(small_study(WANTED), small_dataset, tmp_path / "r")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The records of a stack that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    study = studies_in(folder)(WANTED)
    other = Case(study, load_dataset(study.data, folder), folder / "r")
    assert other.train()
    return other.records()


def test_a_stack_goes_on_to_the_same_bytes(case, whole, caplog):
    assert not case.train(leave_at=LEFT_AT)
    assert [path.name for path in case.newest] == ["step-6", "step-5"]  # it finished a step
    assert begun_stacks(case.folder.path) == {TRIALS: 6}
    assert case.train()
    assert case.from_steps == [0, 6] and not caplog.messages
    assert case.records() == whole
    assert not case.newest


def test_another_stack_size_changes_nothing_begun(case, whole):
    case.train(leave_at=LEFT_AT)
    stacks = plan_stacks(case.study, recorded_size(case.study, case.folder))
    assert [len(stack) for stack in stacks] == [3, 3, 3]  # the other arms too
    assert case.train(trials=stacks[0])
    assert case.records() == whole


@pytest.mark.parametrize(
    ("file", "at"),
    [("replica-0.safetensors", -9), ("replica-2.safetensors", 700), ("about.json", 99)],
)
def test_a_damaged_checkpoint(case, whole, file, at, caplog):
    case.train(leave_at=LEFT_AT)
    flip(case.newest[0] / file, at)
    assert case.train()
    assert case.from_steps == [0, 5]
    (line,) = caplog.messages
    assert line.startswith("baseline/seed-1:")
    assert file in line and line.endswith(" step 5") and "\n" not in line
    assert case.records() == whole


def test_another_study(case, monkeypatch, caplog):
    case.train(leave_at=LEFT_AT)
    monkeypatch.setattr(trial, "identity", lambda *given: "other")
    assert not case.train(leave_at=2)
    assert case.from_steps == [0, 0]
    assert "different study" in caplog.messages[0]
    assert begun_stacks(case.folder.path) == {TRIALS: 3}  # the old one, of step 6, is gone


def test_trials_that_moved_say_so(case, monkeypatch):
    case.train(leave_at=LEFT_AT)
    real = trial.machine
    monkeypatch.setattr(trial, "machine", lambda *given: real(*given) | {"processor": "another"})
    assert case.train()
    assert case.from_steps == [0, 6]  # nothing is trained twice
    record = case.folder.trial("baseline", 1).read_json("environment.json")
    assert [second["processor"] for second in record["resumed_from"]] == [record["processor"]]
    record["processor"] = "another"
    alone = {key: value for key, value in record.items() if key != "resumed_from"}
    assert differences(record, alone, pair=True)["resumed: processor"][0] == "not proven"
    assert differences(record, alone)["resumed: processor"][0] == "declared"


def test_left_early(case, whole, monkeypatch):
    alone = (("baseline", 1),)
    real = trial.record

    def left(*arguments: Any, **named: Any) -> None:
        raise Left

    monkeypatch.setattr(trial, "record", left)
    for trials in (TRIALS, alone):
        assert not case.train(trials=trials, seconds=60)
        assert begun_stacks(case.folder.path)[trials] == 8
        remove_folder(StackCheckpoints(case.folder.path, alone).path)
    monkeypatch.setattr(trial, "record", real)
    assert case.train()
    assert case.from_steps[-1] == 8
    assert case.records() == whole


@pytest.mark.parametrize("differs", [False, True])
def test_the_first_sealed_record_counts(case, differs, caplog):
    first, second = (case.stack(TRIALS[:1]) for _ in range(2))  # a claim that was taken over
    first.run(lambda *_: None, Leaving())
    seal = case.folder.trial(*TRIALS[0]).seal
    if differs:  # as a program whose steps depend on the machine
        next(iter(second.trainer.replicas.weights.values())).detach().mul_(1.5)
    second.run(lambda *_: None, Leaving())
    assert case.folder.trial(*TRIALS[0]).seal == seal
    assert any("two workers" in message for message in caplog.messages) == differs
    kept = case.folder.path / "repeats" / "baseline" / "seed-1.1"
    assert (kept / "evaluation.json").exists() == differs


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_weights_are_kept_on_the_way_whatever_happens_to_the_run(
    small_study, small_dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr(trial, "PROGRESS_SECONDS", 0)
    plain = {"tasks.names": [], "seeds": [1, 2, 3]}
    study = small_study(plain | {"training.keep": [2, 6], "training.keep_every": 4})
    case = Case(study, small_dataset, tmp_path / "kept")
    assert not case.train(leave_at=3)
    flip(case.newest[0] / "about.json", 99)
    assert case.train()
    second = case.folder.trial("baseline", 2)
    assert second.kept_steps == [2, 4, 6]
    second.verify()

    until = Case(small_study(plain), small_dataset, tmp_path / "until")
    assert not until.train(leave_at=3)  # finishes step 4
    newest = StackCheckpoints(until.folder.path, TRIALS).paths()[0]
    after_four = read_checkpoint(newest).states()[1]
    for name, values in second.read_weights(4).items():
        np.testing.assert_array_equal(values, after_four[f"weights/{name}"])

    sets = [second.read_weights(4), second.read_weights(6), second.read_weights()]
    assert_equal(second.read_weights(6), sets[1])
    assert_equal(second.read_weights(8), sets[2])  # the last step
    with refused("missing", match="available steps"):
        second.read_weights(5)

    flip(second.path / "weights-4.safetensors", -1)
    with refused("changed", match="weights-4.safetensors"):
        second.verify()
    (second.path / "weights-4.safetensors").unlink()
    with refused("changed", match="is missing"):
        second.verify()


def assert_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])
