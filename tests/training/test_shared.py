"""What parts share in a forward pass, in the examples."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.model import KeyValueCache
from paribus.engine.training import Trainer

from .measured import require_resumes, train

EXAMPLES = Path(__file__).parents[2] / "examples/architecture"
ARMS: dict[str, dict[str, object]] = {
    "value residual": {"model.modules.attention": "ideas.py:ValueResidual"},
    "experts": {
        "model.modules.mlp": "ideas.py:MixtureOfExperts",
        "training.loss.auxiliary.balance": 0.1,
    },
    "layer dropout": {"model.modules.mlp": "ideas.py:LayerDropout"},
}
each_arm = pytest.mark.parametrize("arm", ARMS)


@pytest.fixture
def trainer_of(small_study, small_dataset):
    def make(overrides: dict[str, object], seeds: list[int], **more: Any) -> Trainer:
        study = small_study({"training.iterations": 30} | overrides)
        shutil.copy(EXAMPLES / "ideas.py", study.folder)
        setting = study.setting("baseline")
        return Trainer(setting, seeds, small_dataset, folder=study.folder, **more)

    return make


@each_arm
def test_stacks_agree_with_replicas_alone_and_resume(arm, trainer_of):
    straight, _ = require_resumes(lambda: trainer_of(ARMS[arm], [1, 2]), 6, 3)
    alone = train(trainer_of(ARMS[arm], [2]), 6)[0]
    np.testing.assert_allclose(straight.state(1).measured, alone, rtol=5e-3, atol=2e-4)
    assert np.isfinite(alone).all()


@each_arm
def test_a_cache_reads_as_at_once(arm, trainer_of):
    trainer = trainer_of(ARMS[arm], [1])
    train(trainer, 3)
    replicas: Any = trainer.replicas
    model = replicas.model.eval()
    assert model.can_cache
    tokens = torch.randint(0, 20, (3, 16), generator=torch.Generator().manual_seed(1))
    cache = KeyValueCache(n_layer=2)
    with torch.no_grad():
        read = [model(piece, cache) for piece in tokens.split([5, 1, 1, 9], dim=1)]
        torch.testing.assert_close(torch.cat(read, dim=1), model(tokens), rtol=1e-4, atol=1e-5)
