"""What every registered probe keeps to, whatever it measures."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from paribus.engine.data import Dataset
from paribus.engine.observation import Probe
from paribus.engine.probes import shipped_probes
from paribus.engine.training import MEASURED, Trainer
from paribus.engine.training.step_metrics import COLUMNS

PROBES = list(shipped_probes().values())
N_ENGINE = len(COLUMNS)


@pytest.fixture
def stack_of(small_study, small_dataset):
    def make(
        seeds: list[int],
        probes: Sequence[Probe] = (),
        arm: str = "layernorm",
        dataset: Dataset = small_dataset,
    ) -> Trainer:
        study = small_study({"training.dropout": 0.1})
        return Trainer(
            study.setting(arm), seeds, dataset, probes=[replace(p, every=1) for p in probes]
        )

    return make


def measured(stack: Trainer, steps: int) -> np.ndarray:
    """[R, steps, C] of the probes' columns."""
    for _ in range(steps):
        stack.step()
    states = [stack.state(r) for r in range(len(stack.seeds))]
    return np.stack([state.measured[:, N_ENGINE:] for state in states])


@pytest.mark.parametrize("R", [1, 3])
def test_probes_change_no_training(R, stack_of):
    seeds = list(range(1, R + 1))
    bare, probed = stack_of(seeds), stack_of(seeds, PROBES)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    for _ in range(4):
        bare.step()
        probed.step()
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()
    assert torch.equal(torch.get_rng_state(), before[2])
    for r in range(R):
        ours, theirs = probed.state(r), bare.state(r)
        assert ours.arrays.keys() == theirs.arrays.keys()
        for name, values in theirs.arrays.items():
            found = ours.arrays[name]
            found = found[:, :N_ENGINE] if name == MEASURED else found
            assert found.tobytes() == values.tobytes(), name
        assert ours.batch_digest == theirs.batch_digest


def test_stacked_replicas_measure_as_alone(stack_of):
    together = measured(stack_of([1, 2, 3], PROBES), 2)
    for r, seed in enumerate((1, 2, 3)):
        alone = measured(stack_of([seed], PROBES), 2)[0]
        np.testing.assert_allclose(together[r], alone, rtol=2e-3, atol=1e-5)
    columns = [c.probe for c in stack_of([1], PROBES).probe_columns]
    differ = (together[0] != together[1]) & ~np.isnan(together[0])
    assert {name for name, d in zip(columns, differ.any(axis=0), strict=True) if d} == {
        probe.name for probe in PROBES
    }


def test_the_cadence_has_the_ends_measured(small_study, small_dataset):
    probe = replace(shipped_probes()["embedding_gain"], every=3)
    stack = Trainer(small_study().setting("layernorm"), [1], small_dataset, probes=[probe])
    there = ~np.isnan(measured(stack, 8)[0]).any(axis=1)
    assert there.tolist() == [True, False, False, True, False, False, True, True]


def test_probes_of_replaced_modules_go(without_attention, small_dataset):
    setting, folder = without_attention.setting("baseline"), without_attention.folder
    stack = Trainer(setting, [1], small_dataset, folder=folder, probes=PROBES)
    left_out = {probe.name for probe in PROBES} - {probe.name for probe in stack.probes}
    assert left_out == {"attention_logits"}
    assert np.isfinite(measured(stack, 1)).any()
