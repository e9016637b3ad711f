"""The average of weights against torch.optim.swa_utils; in a stack, and resumed."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paribus.engine.training import Trainer

from .measured import require_resumes

DECAY, STEPS = 0.6, 10
EMA = {"training.average.kind": "ema", "training.average.options.decay": DECAY}


@pytest.fixture
def trainer_of(small_study, small_dataset):
    def make(seeds: list[int], **average: object) -> Trainer:
        overrides = {"training.iterations": STEPS, "training.optimizer.learning_rate": 1e-2}
        setting = small_study(overrides | average).setting("layernorm")
        return Trainer(setting, seeds, small_dataset)

    return make


def trained(trainer: Trainer) -> list[np.ndarray]:
    """The weights after every step, [R, N], as trained."""
    replicas: Any = trainer.replicas
    weights = []
    for _ in range(STEPS):
        trainer.step()
        weights.append(replicas.weights.flat.numpy().copy())
    return weights


def evaluated(trainer: Trainer) -> np.ndarray:
    replicas: Any = trainer.replicas
    return replicas.evaluated(trainer.t).flat.numpy().copy()


def test_ema_is_pytorch_s(trainer_of):
    trainer, plain = trainer_of([1, 2], **EMA), trainer_of([1, 2])
    np.testing.assert_array_equal(evaluated(trainer), evaluated(plain))  # of the initial weights
    weights = trained(trainer)
    np.testing.assert_array_equal(weights, trained(plain))
    model = nn.ParameterList([nn.Parameter(torch.from_numpy(weights[0].copy()))])
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    for values in weights:
        model[0].data.copy_(torch.from_numpy(values))
        averaged.update_parameters(model)
    expected = averaged.module[0].detach().numpy()
    np.testing.assert_allclose(evaluated(trainer), expected, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(evaluated(trainer), weights[-1])


def test_an_average_resumes_in_any_stack(trainer_of):
    straight, resumed = require_resumes(lambda: trainer_of([1, 2], **EMA), STEPS, 7)
    np.testing.assert_array_equal(evaluated(straight), evaluated(resumed))
    alone = trainer_of([2], **EMA)
    trained(alone)
    np.testing.assert_allclose(evaluated(alone)[0], evaluated(straight)[1], atol=1e-4)
