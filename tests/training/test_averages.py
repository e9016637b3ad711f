"""Averages of weights against torch.optim.swa_utils and by hand; in a stack, and resumed."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paribus.declared import declared
from paribus.engine.training import Trainer
from paribus.engine.training.averages import Average

from .measured import require_resumes

KIND = "training.average.kind"
OPTIONS = "training.average.options"
AVERAGES = declared("paribus.engine.training.averages", Average)
each_average = pytest.mark.parametrize("name", AVERAGES)
SMALL: dict[str, dict[str, object]] = {
    "ema": {f"{OPTIONS}.decay": 0.6},
    "last": {f"{OPTIONS}.share": 0.5},
}
STEPS = 10


@pytest.fixture
def trainer_of(small_study, small_dataset):
    def make(name: str, seeds: list[int] | None = None, **more: object) -> Trainer:
        overrides = {"training.iterations": STEPS, "training.optimizer.learning_rate": 1e-2}
        study = small_study(overrides | {KIND: name} | SMALL.get(name, {}) | more)
        return Trainer(study.setting("layernorm"), seeds or [1, 2], small_dataset)

    return make


def trained(trainer: Trainer) -> list[np.ndarray]:
    """The weights after every step, [R, N], as trained."""
    found: Any = trainer.replicas
    seen = []
    for _ in range(trainer.setting.iterations - trainer.t):
        trainer.step()
        seen.append(found.weights.flat.numpy().copy())
    return seen


def evaluated(trainer: Trainer) -> np.ndarray:
    found: Any = trainer.replicas
    return found.evaluated(trainer.t).flat.numpy().copy()


def pytorch_s(seen: list[np.ndarray], **how: Any) -> np.ndarray:
    model = nn.ParameterList([nn.Parameter(torch.from_numpy(seen[0].copy()))])
    averaged = AveragedModel(model, **how)
    for weights in seen:
        model[0].data.copy_(torch.from_numpy(weights))
        averaged.update_parameters(model)
    return averaged.module[0].detach().numpy()


def expected(name: str, seen: list[np.ndarray]) -> np.ndarray:
    if name == "ema":
        return pytorch_s(seen, multi_avg_fn=get_ema_multi_avg_fn(0.6))
    return pytorch_s(seen[-5:])


@each_average
def test_averages_equal_those_of_pytorch(name, trainer_of):
    trainer, plain = trainer_of(name), trainer_of("none")
    before = evaluated(trainer)
    np.testing.assert_array_equal(before, evaluated(plain))  # of the initial weights
    seen = trained(trainer)
    for ours, theirs in zip(seen, trained(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(evaluated(trainer), expected(name, seen), rtol=1e-5, atol=1e-6)
    rows: Any = trainer.replicas
    for parameter, values in trainer.parameters(1).items():
        assert not np.array_equal(values, rows.weights[parameter][1].numpy()), parameter


@each_average
def test_averages_resume_in_any_stack(name, trainer_of):
    straight, goes_on = require_resumes(lambda: trainer_of(name), STEPS, 7)
    np.testing.assert_array_equal(evaluated(straight), evaluated(goes_on))
    alone = trainer_of(name, [2])
    trained(alone)
    np.testing.assert_allclose(evaluated(alone)[0], evaluated(straight)[1], atol=1e-4)
