"""bfloat16 in the engine: it is autocast, as anybody would write it, and close to float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paribus.engine.data import Dataset, batch
from paribus.engine.model import build_model, load_parameters, parameter_uses
from paribus.engine.probes import shipped_probes
from paribus.engine.setting import Setting
from paribus.engine.training import COLUMNS, Trainer, is_decayed
from paribus.study import Study

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
    for _ in range(STEPS):
        stack.step()
    return np.stack([stack.state(r).measured for r in range(len(seeds))])


def plain_autocast(setting: Setting, seed: int, dataset: Dataset) -> np.ndarray:
    """[STEPS] losses of PyTorch's own training loop, from the weights of the engine."""
    model = build_model(setting, dataset.vocab_size).train()
    load_parameters(model, Trainer(setting, [seed], dataset).parameters(0))
    spec = setting.training.optimizer
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
        windows = batch(dataset.train, seed, t, setting.training.batch_size, setting.data.seq_len)
        inputs, targets = torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        assert setting.training.grad_clip is not None
        torch.nn.utils.clip_grad_norm_(model.parameters(), setting.training.grad_clip)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def test_a_stack_of_one_is_plain_autocast(
    setting_of: Callable[[str], Setting], small_dataset: Dataset
) -> None:
    ours = train(setting_of("bfloat16"), [1], small_dataset)[0, :, LOSS]
    theirs = plain_autocast(setting_of("bfloat16"), 1, small_dataset)
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
