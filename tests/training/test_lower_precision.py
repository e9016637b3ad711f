"""In bfloat16, a step is PyTorch's own under autocast, alone and in a stack."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paribus.engine.data import Dataset, batch
from paribus.engine.model import build_model, load_parameters, parameter_uses
from paribus.engine.setting import Setting
from paribus.engine.training import Trainer
from paribus.engine.training.groups import is_decayed

from .measured import train

STEPS = 16


@pytest.fixture
def setting(small_study):
    overrides = {
        "training.iterations": STEPS,
        "training.precision": "bfloat16",
        "training.optimizer.learning_rate": 3e-3,
    }
    return small_study(overrides).setting("layernorm")


def train_plainly(setting: Setting, dataset: Dataset) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train seed 1 as anybody would write it; return losses and weights."""
    model = build_model(setting, dataset.vocab_size).train()
    load_parameters(model, Trainer(setting, [1], dataset).parameters(0))
    training, spec = setting.training, setting.training.optimizer
    groups: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    uses = parameter_uses(model)
    for name, parameter in model.named_parameters():
        groups[is_decayed(uses[name], spec.decay)].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}],
        lr=spec.learning_rate,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
    )
    losses = []
    for t in range(STEPS):
        windows = batch(dataset.train, 1, t, training.batch_size, setting.data.seq_len)
        inputs, targets = torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.grad_clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in model.named_parameters()}


def test_one_replica_is_autocast(setting, small_dataset):
    losses, weights = train_plainly(setting, small_dataset)
    trainer = Trainer(setting, [1], small_dataset)
    np.testing.assert_allclose(train(trainer, STEPS)[0, :, 0], losses, rtol=0, atol=2e-4)
    # A step of AdamW is up to 3e-3 in each number. That of a gradient near zero is decided by
    # rounding: of a bias of keys, which softmax cancels, all of it.
    for name, values in trainer.parameters(0).items():
        distance = np.abs(values - weights[name])
        assert np.median(distance) < 2e-5, name
        assert distance.mean() < 1e-4 or name.endswith("qkv.bias"), name


def test_a_stack_agrees_with_its_replicas_alone(setting, small_dataset):
    stacked = train(Trainer(setting, [1, 2], small_dataset), 8)
    for replica, seed in enumerate([1, 2]):
        alone = train(Trainer(setting, [seed], small_dataset), 8)[0]
        np.testing.assert_allclose(stacked[replica][:, 0], alone[:, 0], rtol=0, atol=2e-3)
