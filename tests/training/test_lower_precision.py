"""Lower precision is autocast as anybody would write it; float16 has torch.amp's loss scaling."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paribus.engine.setting import Setting
from paribus.engine.training import Trainer
from paribus.engine.training.replicas import ForwardBackward
from paribus.engine.training.step_metrics import COLUMNS

from .measured import require_resumes
from .plain_loop import train_plainly

STEPS = 16
SCALED = [*COLUMNS, "loss_scale", "skipped_steps"]
LOSS, NORM = SCALED.index("train_loss"), SCALED.index("grad_norm")
SCALE, SKIPPED = SCALED.index("loss_scale"), SCALED.index("skipped_steps")
# Overflows at first: some six halvings bring gradients of this model into the range of float16.
HUGE = 2.0**24


@pytest.fixture
def setting_of(small_study):
    def make(more: dict[str, Any] | None = None, *, initial: float = HUGE) -> Setting:
        overrides = {
            "training.iterations": STEPS,
            "training.precision": "float16",
            "training.optimizer.learning_rate": 3e-3,
            "training.loss_scale.initial": initial,
            "training.loss_scale.growth_interval": 3,
        }
        return small_study(overrides | (more or {})).setting("layernorm")

    return make


def with_precision(setting: Setting, precision: str) -> Setting:
    training = setting.training.model_copy(update={"precision": precision})
    return setting.model_copy(update={"training": training})


def trained(stack: Trainer, steps: int = STEPS) -> Trainer:
    for _ in range(steps):
        stack.step()
    return stack


def measured(stack: Trainer) -> np.ndarray:
    """[R, t, C]."""
    return np.stack([stack.state(r).measured for r in range(len(stack.seeds))])


def state(stack: Trainer, replica: int) -> dict[str, bytes]:
    return {name: one.tobytes() for name, one in stack.state(replica).arrays.items()}


@pytest.mark.parametrize("initial", [HUGE, 2.0**16], ids=["overflows at first", "as by default"])
def test_one_replica_is_autocast(setting_of, small_dataset, initial):
    setting = setting_of(initial=initial)
    rows, weights = train_plainly(setting, 1, small_dataset, STEPS)
    assert (rows[-1, 2] > 2) == (initial == HUGE)  # there is something to agree about
    assert len(set(rows[:, 1])) > 3
    stack = trained(Trainer(setting, [1], small_dataset))
    assert list(stack.columns) == SCALED
    ours = measured(stack)[0]
    np.testing.assert_array_equal(ours[:, [SCALE, SKIPPED]], rows[:, 1:])
    np.testing.assert_allclose(ours[:, LOSS], rows[:, 0], rtol=0, atol=2e-4)
    # A step of AdamW is up to 3e-3 in each number. That of a gradient near zero is decided by
    # rounding: of a bias of keys, which softmax cancels, all of it.
    for name, found in stack.parameters(0).items():
        distance = np.abs(found - weights[name])
        assert np.median(distance) < 2e-5, name
        assert distance.mean() < 1e-4 or name.endswith("qkv.bias"), name


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"training.optimizer.name": "muon", "training.optimizer.weight_decay": 0.5},
        {"training.optimizer.name": "sgd", "training.micro_batch": 2},
        {"training.optimizer.name": "lion"},
    ],
    ids=["adamw", "muon", "sgd in parts", "lion"],
)
def test_skips_keep_bits(setting_of, small_dataset, more):
    stack = Trainer(setting_of(more, initial=2.0**16), [1, 2], small_dataset)
    trained(stack, 4)  # slots are not zero any more
    before = [stack.state(r) for r in (0, 1)]
    scale = np.array(2.0**60, np.float32)
    overflows = replace(before[0], arrays={**before[0].arrays, "loss_scale/scale": scale})
    stack.restore([overflows, before[1]])
    stack.step()
    after = [stack.state(r) for r in (0, 1)]
    for name in stack.replicas.arrays(0):
        same = [
            a.arrays[name].tobytes() == b.arrays[name].tobytes()
            for a, b in zip(before, after, strict=True)
        ]
        assert same[0] and not same[1], name
    skipped, moved = (one.measured[-1] for one in after)
    assert (skipped[SCALE], skipped[SKIPPED], moved[SKIPPED]) == (2.0**60, 1, 0)
    assert np.isfinite(skipped[LOSS]) and not np.isfinite(skipped[NORM])
    assert np.isfinite(moved[NORM])
    assert after[0].arrays["loss_scale/scale"] == 2.0**59
    assert after[0].diverged_at is None
    stack.step()  # the neighbour of one that overflows computes what it computes beside another
    calm = Trainer(setting_of(more, initial=2.0**16), [1, 2], small_dataset)
    trained(calm, 6)
    assert state(stack, 1) == state(calm, 1)


@pytest.mark.parametrize(
    ("precision", "steps", "nats"), [("bfloat16", 8, 2e-3), ("float16", STEPS, 1e-3)]
)
def test_a_stack_agrees_with_its_replicas_alone(precision, steps, nats, setting_of, small_dataset):
    setting = with_precision(setting_of(), precision)
    stacked = measured(trained(Trainer(setting, [1, 2], small_dataset), steps))
    for replica, seed in enumerate([1, 2]):
        alone = measured(trained(Trainer(setting, [seed], small_dataset), steps))[0]
        if precision == "float16":
            np.testing.assert_array_equal(stacked[replica][:, SCALE:], alone[:, SCALE:])
        np.testing.assert_allclose(stacked[replica][:, LOSS], alone[:, LOSS], rtol=0, atol=nats)


@pytest.mark.parametrize("at", [2, 7], ids=["among skipped", "among others"])
def test_training_resumes_bit_for_bit(setting_of, small_dataset, at):
    whole, _ = require_resumes(lambda: Trainer(setting_of(), [1, 2], small_dataset), STEPS, at)
    skipped = measured(whole)[0, :, SKIPPED]
    assert skipped[1] == 2 and skipped[at - 1] < skipped[-1]


def with_scale(stack: Trainer, scales: Sequence[float]) -> None:
    states = []
    for r, scale in enumerate(scales):
        one = stack.state(r)
        arrays = {**one.arrays, "loss_scale/scale": np.array(scale, np.float32)}
        states.append(replace(one, arrays=arrays))
    stack.restore(states)


def test_overflow_at_the_smallest_scale_is_divergence(setting_of, small_dataset, monkeypatch):
    stack = trained(Trainer(setting_of(initial=2.0**8), [1, 2, 3], small_dataset), 2)
    passes = stack.replicas.forward_backward

    def overflowing(*given: Any) -> ForwardBackward:
        """The gradients of two replicas overflow at any scale; their losses do not."""
        found = passes(*given)
        found.gradients.flat[:2, 0] = float("inf")
        return found

    monkeypatch.setattr(stack.replicas, "forward_backward", overflowing)
    with_scale(stack, [1.0, 2.0, 2.0**8])
    before = state(stack, 0)
    trained(stack, 4)
    found = measured(stack)
    assert np.isfinite(found[:2, 2, LOSS]).all() and not np.isfinite(found[:2, 2, NORM]).any()
    assert [stack.state(r).diverged_at for r in range(3)] == [2, 3, None]
    assert np.isnan(found[0, 3:]).all() and np.isnan(found[1, 4:]).all()
    assert np.isfinite(found[2]).all()
    np.testing.assert_array_equal(found[:2, 2, SCALE:], [[1.0, 0.0], [2.0, 1.0]])
    weights = [name for name in before if name.startswith("weights/")]
    assert {name: state(stack, 0)[name] for name in weights} == {
        name: before[name] for name in weights
    }
