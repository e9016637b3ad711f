"""bfloat16 in the engine: it is autocast, as anybody would write it, and close to float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paribus.engine.data import Dataset
from paribus.engine.probes import shipped_probes
from paribus.engine.setting import Setting
from paribus.engine.training import COLUMNS, Trainer
from paribus.study import Study

from .measured import train as measured_train
from .plain_loop import train_plainly

STEPS = 8
LOSS, GRAD_NORM = list(COLUMNS).index("train_loss"), list(COLUMNS).index("grad_norm")


@pytest.fixture
def setting_of(small_study: Callable[..., Study]) -> Callable[[str], Setting]:
    def make(precision: str) -> Setting:
        overrides = {"training.precision": precision, "training.optimizer.learning_rate": 3e-3}
        return small_study(overrides).setting("layernorm")

    return make


def train(setting: Setting, seeds: list[int], dataset: Dataset) -> np.ndarray:
    """[R, STEPS, C] what the engine measures, every probe at every step."""
    probes = [probe.at(1) for probe in shipped_probes().values()]
    stack = Trainer(setting, seeds, dataset, probes=probes)
    measured = measured_train(stack, STEPS)
    for replica in range(len(seeds)):  # weights and moments stay in float32
        assert {array.dtype for array in stack.state(replica).arrays.values()} == {np.dtype("f4")}
    return measured


def test_a_stack_of_one_is_plain_autocast(
    setting_of: Callable[[str], Setting], small_dataset: Dataset
) -> None:
    ours = train(setting_of("bfloat16"), [1], small_dataset)[0, :, LOSS]
    theirs = train_plainly(setting_of("bfloat16"), 1, small_dataset, STEPS)[0][:, 0]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-4)


def test_every_measurement_is_close_to_float32(
    setting_of: Callable[[str], Setting], small_dataset: Dataset
) -> None:
    exact = train(setting_of("float32"), [1], small_dataset)[0]
    mixed = train(setting_of("bfloat16"), [1], small_dataset)[0]
    assert np.abs(mixed[:, LOSS] - exact[:, LOSS]).max() < 0.005
    assert np.abs(mixed[:, GRAD_NORM] / exact[:, GRAD_NORM] - 1).max() < 0.02
    # Every probe reads bfloat16 as it reads float32: nothing is missing, nothing overflows.
    np.testing.assert_array_equal(np.isnan(mixed), np.isnan(exact))
    assert np.isfinite(mixed[~np.isnan(exact)]).all()


def test_a_stack_in_bfloat16_agrees_with_its_replicas_alone(
    setting_of: Callable[[str], Setting], small_dataset: Dataset
) -> None:
    setting = setting_of("bfloat16")
    stacked = train(setting, [1, 2], small_dataset)[:, :, LOSS]
    for replica, seed in enumerate([1, 2]):
        alone = train(setting, [seed], small_dataset)[0, :, LOSS]
        np.testing.assert_allclose(stacked[replica], alone, rtol=0, atol=2e-3)


def test_a_precision_that_is_open_is_not_trained(
    setting_of: Callable[[str], Setting], small_dataset: Dataset
) -> None:
    with pytest.raises(ValueError, match="settled before training"):
        Trainer(setting_of("auto"), [1], small_dataset)
