"""Which trials share a stack, how many memory holds, and what is said when a machine fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from paribus.engine.cost import trial_bytes
from paribus.engine.execution.trial import trial as trials_of_a_stack
from paribus.engine.execution.trial.stacks import (
    default_size,
    plan_stacks,
    recorded_size,
    sharing_arms,
)
from paribus.engine.execution.trial.trial import Stack
from paribus.engine.machine.environment import machine_failure
from paribus.results import ResultsFolder
from paribus.runs.processes import Leaving
from paribus.study import Study, parse_study

CPU = torch.device("cpu")
SWEEP = {f"rate-{i}": {"set": {"training.optimizer.learning_rate": i * 1e-4}} for i in (1, 2, 4)}
NORMS = {name: {"set": {"model.embedding.norm": name}} for name in ("layernorm", "rmsnorm")}
DECAYS = {f"decay-{i}": {"set": {"training.optimizer.weight_decay": i / 10}} for i in (2, 5)}


def study_of(arms: dict[str, Any], seeds: list[int]) -> Study:
    training = {"iterations": 40, "batch_size": 2}
    table = {"name": "s", "seeds": seeds, "training": training, "arms": {"baseline": {}} | arms}
    return parse_study(table, folder=Path())


def test_a_sweep_is_one_stack():
    study = study_of(SWEEP | DECAYS, [1, 2])
    assert sharing_arms(study) == [sorted(study.arms)]
    (stack,) = plan_stacks(study, len(study.trials))
    assert sorted(stack) == sorted(study.trials)


def test_own_probes_see_the_setting_of_their_own_arm():
    study = study_of(SWEEP | DECAYS, [1, 2])
    table = study.model_dump() | {"probes": {"own": ["ideas.py:mine"]}}
    own = parse_study(table, folder=Path())
    assert sharing_arms(own) == [[arm] for arm in own.arms]
    for stack in plan_stacks(own, len(own.trials)):
        assert len({own.setting(arm) for arm, _ in stack}) == 1


@given(
    arms=st.sampled_from([NORMS, SWEEP, NORMS | SWEEP, SWEEP | DECAYS]),
    n_seeds=st.integers(2, 9),
    size=st.integers(1, 40),
    data=st.data(),
)
def test_equal_pairs(arms, n_seeds, size, data):
    study = study_of(arms, list(range(n_seeds)))
    fresh = plan_stacks(study, size)
    assert sorted(trial for stack in fresh for trial in stack) == sorted(study.trials)
    assert all(len({study.setting(arm).common for arm, _ in stack}) == 1 for stack in fresh)
    assert max(len(stack) for stack in fresh) <= size
    sizes = {trial: len(stack) for stack in fresh for trial in stack}
    assert all(sizes[arm, seed] == sizes["baseline", seed] for arm, seed in study.trials)

    # The largest stack gives the same ones again, and pairs stay equal.
    assert plan_stacks(study, max(map(len, fresh))) == fresh
    later = plan_stacks(study, data.draw(st.sampled_from([len(stack) for stack in fresh])))
    sizes = {trial: len(stack) for stack in later for trial in stack}
    assert all(sizes[arm, seed] == sizes["baseline", seed] for arm, seed in study.trials)


def test_what_an_interruption_leaves_unrecorded_keeps_its_stack(
    small_study, small_dataset, tmp_path, monkeypatch
):
    study = small_study({"tasks.names": [], "seeds": [1, 2, 3]})
    folder = ResultsFolder(tmp_path / "results")
    folder.create(study)
    three = tuple(("baseline", seed) for seed in (1, 2, 3))

    def train():
        stack = Stack(study, three, folder, small_dataset, CPU, checkpoint_seconds=60)
        stack.run(lambda *_: None, Leaving())

    record = trials_of_a_stack.record

    def interrupted(*arguments: Any, **options: Any) -> None:
        record(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(trials_of_a_stack, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train()
    trials = [folder.trial(*trial) for trial in three]
    assert [trial.is_finished for trial in trials] == [True, False, False]
    sealed = (trials[0].path / "manifest.json").stat().st_mtime_ns
    monkeypatch.undo()
    assert recorded_size(study, folder) == 3
    train()
    assert [trial.read_json("environment.json")["stack"] for trial in trials] == [3, 3, 3]
    assert (trials[0].path / "manifest.json").stat().st_mtime_ns == sealed
    assert not list((folder.path / "checkpoints").glob("*"))


def test_as_many_replicas_as_memory_holds():
    study = study_of(NORMS, list(range(8)))
    vocabularies = dict.fromkeys(study.arms, 65)
    largest = max(trial_bytes(study.setting(arm), 65) for arm in study.arms)

    def size(memory: int | None, device: str = "cuda", workers: int = 1) -> int:
        machine = {"device": device, "devices": 1, "memory": memory}
        return default_size(study, machine, vocabularies, workers)

    assert size(100 * len(study.trials) * largest) == size(None, "mps") == len(study.trials)
    assert (size(10 * largest), size(10 * largest, workers=2), size(largest // 2)) == (7, 3, 1)
    assert size(None, "cpu") == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            "smaller --stack",
        ),
        (MemoryError(), "MemoryError"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            "memory",
        ),
        (torch.AcceleratorError("CUDA error: unspecified launch failure\nmore"), "GPU failed"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("a defect of ours"), None),
    ],
)
def test_failures_of_the_machine_are_told_from_ours(error, words):
    line = machine_failure(error)
    assert line is None if words is None else line is not None and words in line
    assert line is None or ("\n" not in line and "checkpoints" in line)
