"""The engine: a stack agrees with its replicas alone, and they do not touch each other."""

from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.probes import shipped_probes
from paribus.engine.training import Trainer, replicas
from paribus.engine.training.step_metrics import COLUMNS

from .measured import require_resumes, train

PROBES = list(shipped_probes().values())
LOSS = list(COLUMNS).index("train_loss")


@pytest.fixture
def stack_of(small_study, small_dataset):
    def make(seeds: list[int], arm: str = "layernorm", **overrides: object) -> Trainer:
        study = small_study({key.replace("__", "."): v for key, v in overrides.items()})
        return Trainer(study.setting(arm), seeds, small_dataset, probes=PROBES)

    return make


def test_stacks_agree_with_replicas_alone(stack_of):
    together = train(stack := stack_of([1, 2, 3], training__dropout=0.2), 8)
    for r, seed in enumerate((1, 2, 3)):
        alone = train(solo := stack_of([seed], training__dropout=0.2), 8)[0]
        assert solo.batch_digests[0] == stack.batch_digests[r]
        np.testing.assert_allclose(together[r], alone, rtol=5e-3, atol=1e-5)


def test_a_sweep_is_a_stack(small_study, small_dataset):
    variants: list[dict[str, object]] = [
        {},
        {"training.optimizer.learning_rate": 3e-3},
        {"training.optimizer.weight_decay": 0.9},
    ]
    settings = [small_study(variant).setting("baseline") for variant in variants]
    seeds = [1, 1, 2]
    together = train(stack := Trainer(settings, seeds, small_dataset, probes=PROBES), 8)
    assert len({row.tobytes() for row in together[:, :, LOSS]}) == len(seeds)
    for r, (setting, seed) in enumerate(zip(settings, seeds, strict=True)):
        alone = train(solo := Trainer(setting, [seed], small_dataset, probes=PROBES), 8)[0]
        assert solo.replicas.initial_records[0] == stack.replicas.initial_records[r]
        np.testing.assert_allclose(together[r], alone, rtol=5e-3, atol=1e-5)


def poison_weights(stack: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        stack.replicas.weights.flat[1, 5] = float("nan")


def poison_gradient(stack: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.autograd.grad

    def poisoned(*args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        grads = plain(*args, **kwargs)
        grads[0][1, 0, 7] = float("inf")
        return grads

    monkeypatch.setattr(torch.autograd, "grad", poisoned)


def poison_loss(stack: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = replicas.losses_of

    def poisoned(*args: Any) -> tuple[torch.Tensor, ...]:
        return tuple(x * torch.tensor([1.0, float("nan"), 1.0]) for x in plain(*args))

    monkeypatch.setattr(replicas, "losses_of", poisoned)


@pytest.mark.parametrize("poison", [poison_weights, poison_gradient, poison_loss])
def test_a_diverged_replica_changes_no_bit_of_its_neighbours(stack_of, monkeypatch, poison):
    healthy, struck = stack_of([1, 2, 3]), stack_of([1, 2, 3])
    expected = train(healthy, 6)
    train(struck, 2)
    with monkeypatch.context() as patch:
        poison(struck, patch)
        frozen = struck.parameters(1)
        struck.step()
    found = train(struck, 3)
    for r in (0, 2):
        np.testing.assert_array_equal(found[r], expected[r])
        for name, value in struck.parameters(r).items():
            assert value.tobytes() == healthy.parameters(r)[name].tobytes()
        assert struck.state(r).diverged_at is None
    assert struck.state(1).diverged_at == 2
    for name, value in struck.parameters(1).items():
        assert value.tobytes() == frozen[name].tobytes()  # it stays where it was
    assert np.isnan(found[1, 3:]).all()
    assert struck.batch_digests == healthy.batch_digests  # the controls still hold


def test_a_stack_resumes_bit_for_bit(stack_of):
    require_resumes(lambda: stack_of([1, 2], training__dropout=0.1), 8, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_sees_the_same_batches(small_study, small_dataset):
    setting = small_study().setting("layernorm")
    cpu = Trainer(setting, [1, 2], small_dataset)
    gpu = Trainer(setting, [1, 2], small_dataset, device="cuda")
    np.testing.assert_allclose(train(gpu, 8), train(cpu, 8), rtol=1e-3)
    assert gpu.batch_digests == cpu.batch_digests
    assert gpu.replicas.initial_records == cpu.replicas.initial_records
