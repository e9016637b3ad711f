"""Batches that grow: sizes by hand, the same windows as without, and all else at equal tokens."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from paribus.engine.data import starts_of_step
from paribus.engine.data.order import Mixture, Windows
from paribus.engine.setting import Setting
from paribus.engine.training import Trainer
from paribus.engine.training.schedules import LearningRates

from ..tools import refused
from .measured import require_resumes, train

RAMP = {"from": 2, "to": 8, "until": 0.5}
BATCH = "training.batch_size"


def setting_of(ramp: object, iterations: int, **training: Any) -> Setting:
    table = {"iterations": iterations, "batch_size": ramp, **training}
    return Setting.model_validate({"training": table, "data": {"seq_len": 16}})


def sizes(setting: Setting) -> list[int]:
    ends = [setting.windows_before(t) for t in range(setting.iterations + 1)]
    return [b - a for a, b in pairwise(ends)]


def test_sizes_by_hand():
    """Of 64 windows, 2 + 6 w / 32 rounded down after w of the first 32, and then 8."""
    found = setting_of(RAMP, 8)
    assert sizes(found) == [2, 2, 2, 3, 3, 4, 5, 5, 6, 8, 8, 8, 8]
    assert (found.iterations, found.budget_iterations, found.tokens) == (13, 8, 64 * 16)
    doubling = setting_of({"from": 1, "to": 4, "until": 0.5, "shape": "doubling"}, 8)
    assert sizes(doubling) == [1] * 8 + [2] * 4 + [4] * 4
    # What is left over is a step of its own, in its place: 6 of 40 - 4 - 6, and 2 of 40 - 6.
    assert sizes(setting_of({"from": 4, "to": 8, "until": 0.2}, 5)) == [4, 6, 6, 8, 8, 8]
    assert sizes(setting_of({"from": 6, "to": 8, "until": 0.1}, 5)) == [2, 6, 8, 8, 8, 8]
    assert sizes(setting_of(8, 3)) == [8, 8, 8]


@given(
    first=st.integers(1, 20),
    more=st.integers(1, 40),
    unit=st.integers(1, 4),
    until=st.floats(0.01, 1),
    iterations=st.integers(1, 60),
)
def test_sizes_add_up(first, more, unit, until, iterations):
    ramp = {"from": first * unit, "to": (first + more) * unit, "until": until}
    setting = setting_of(ramp, iterations, micro_batch=unit)
    found = sizes(setting)
    assert sum(found) == setting.windows == iterations * ramp["to"]
    assert found == sorted(found) and found[-1] <= ramp["to"]
    assert all(size and size % unit == 0 for size in found)
    # At most what is left over is less than the first.
    assert sum(size < ramp["from"] for size in found) <= 1
    for t, end in enumerate(np.cumsum(found).tolist(), 1):
        assert setting.step_with(end) == t and setting.windows_before(t) == end


@pytest.mark.parametrize("order", ["sampled", "epoch", "mixture"])
def test_ramped_batches_read_the_same_windows_in_the_same_order(order):
    text = np.arange(900, dtype=np.int64)
    places: Any = Windows(len(text), 16, "epoch" if order == "mixture" else order)
    if order == "mixture":
        half = Windows(450, 16, "epoch")
        places = Mixture({"a": half, "b": half}, {"a": 0.75, "b": 0.25}, {"a": 0, "b": 450})
    ramp = setting_of(RAMP, 8)
    ours = [starts_of_step(places, 3, t, ramp) for t in range(ramp.iterations)]
    theirs = [places.starts(3, t, 8) for t in range(8)]
    np.testing.assert_array_equal(np.concatenate(ours), np.concatenate(theirs))
    assert [len(rows) for rows in ours] == sizes(ramp)
    # Any of them without the others; and constant batches are as ever.
    np.testing.assert_array_equal(starts_of_step(places, 3, 7, ramp), ours[7])
    np.testing.assert_array_equal(
        starts_of_step(places, 3, 5, setting_of(8, 8)), places.starts(3, 5, 8)
    )


def test_schedules_go_by_tokens():
    """Where both have learned from as many tokens, both have the same learning rate."""
    schedule = {"kind": "cosine", "warmup": 3}
    plain, grows = (setting_of(size, 8, schedule=schedule) for size in (8, RAMP))
    rates = LearningRates([plain], None), LearningRates([grows], None)
    checked = 0
    for t in range(8):
        other = grows.step_with((t + 1) * 8)
        if grows.windows_before(other) == (t + 1) * 8:
            checked += 1
            assert rates[1].at(other - 1) == pytest.approx(rates[0].at(t), rel=1e-6)
    assert checked >= 4
    of_all = [rates[1].at(t).item() for t in range(grows.iterations)]
    peak = plain.training.optimizer.learning_rate
    assert max(of_all) <= peak * (1 + 1e-6) and of_all[-1] == pytest.approx(0.1 * peak)
    assert of_all[0] == pytest.approx(peak * 2 / 24)  # 2 windows of a warmup of 3 x 8


@pytest.fixture
def trainer_of(small_study, small_dataset):
    def make(seeds: list[int], overrides: dict[str, Any] | None = None) -> Trainer:
        study = small_study({"training.iterations": 4, BATCH: RAMP} | (overrides or {}))
        return Trainer(study.setting("layernorm"), seeds, small_dataset)

    return make


def test_a_ramp_agrees_in_stacks_and_micro_batches(trainer_of):
    together = trainer_of([1, 2])
    steps = together.setting.iterations
    found, alone = train(together, steps), train(trainer_of([2]), steps)
    np.testing.assert_allclose(found[1], alone[0], rtol=1e-4, atol=1e-5)
    column = list(together.columns).index("batch_size")
    assert found[0, :, column].tolist() == sizes(together.setting)
    doubling: dict[str, Any] = {BATCH: {**RAMP, "shape": "doubling"}}
    whole, again = (
        trainer_of([2], doubling),
        trainer_of([2], doubling | {"training.micro_batch": 2}),
    )
    n = whole.setting.iterations
    np.testing.assert_allclose(train(again, n), train(whole, n), rtol=1e-4, atol=1e-6)
    assert again.batch_digests == whole.batch_digests


def test_a_ramped_run_resumes_bit_identically(trainer_of):
    steps = trainer_of([1, 2]).setting.iterations
    require_resumes(lambda: trainer_of([1, 2]), steps, 4)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({BATCH: {"from": 3, "to": 8, "until": 0.5, "shape": "doubling"}}, "power of two"),
        ({BATCH: RAMP, "training.budget": "flops"}, "budget"),
        ({BATCH: {"from": 1, "to": 2**20, "until": 1.0}, "training.iterations": 1000}, "limit of"),
    ],
)
def test_impossible_ramps(overrides, words, small_study):
    with refused("value", match=words):
        small_study(overrides)
