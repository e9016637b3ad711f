"""Schedules by hand, against transformers' and against what PyTorch is given."""

import math
import tomllib

import pytest
import torch
import transformers

from paribus.engine.setting import Setting
from paribus.engine.setting.setting import Schedule, Training
from paribus.engine.training.groups import ParameterGroup
from paribus.engine.training.optimizers import find_optimizer
from paribus.engine.training.schedules import Scheduled, Schedules, scheduled_columns
from paribus.engine.training.stacked_optimizer import StackedOptimizer
from paribus.study.choices import read_options

from ..tools import as_rows, refused


def rates(schedule: Schedule, iterations: int) -> list[float]:
    found = Scheduled(schedule, iterations)
    return [found.value(1.0, t) for t in range(iterations)]


ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1.0, 1.0, 1.0]),
        (Schedule(warmup=4), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        (Schedule(warmup=3, initial_fraction=0.7), [0.8, 0.9, 1.0, 1.0]),
        # After 2 steps of warmup half a cosine from 1 to 0.1: 0.1 + 0.45 (1 + cos(pi k / 4)).
        (
            Schedule(kind="cosine", warmup=2),
            [0.5, 1.0, 0.1 + 0.45 * (1 + ROOT), 0.55, 0.1 + 0.45 * (1 - ROOT), 0.1],
        ),
        (Schedule(kind="cosine", final_fraction=0.0), [(1 + ROOT) / 2, 0.5, (1 - ROOT) / 2, 0.0]),
        # The last four of ten steps decay to 0: 1 - sqrt(k / 4), and half a cosine.
        (
            Schedule(kind="wsd", final_fraction=0.0, options={"decay": 0.4, "shape": "sqrt"}),
            [1.0] * 6 + [0.5, 1 - ROOT, 1 - 0.75**0.5, 0.0],
        ),
        (
            Schedule(kind="wsd", final_fraction=0.0, options={"decay": 0.4, "shape": "cosine"}),
            [1.0] * 6 + [(1 + ROOT) / 2, 0.5, (1 - ROOT) / 2, 0.0],
        ),
    ],
)
def test_schedules_by_hand(schedule, expected):
    assert rates(schedule, len(expected)) == pytest.approx(expected, abs=1e-12)


# Those of transformers count steps from 0 and begin at a rate of 0: their step t + 1 is ours at t.
THEIRS = {
    "linear": lambda o: transformers.get_linear_schedule_with_warmup(o, 7, 50),
    "power": lambda o: transformers.get_polynomial_decay_schedule_with_warmup(
        o, 7, 50, lr_end=0.2, power=3.0
    ),
    "wsd": lambda o: transformers.get_wsd_schedule(
        o, 7, 15, num_training_steps=50, decay_type="linear", min_lr_ratio=0.2
    ),
    "inverse_sqrt": lambda o: transformers.get_inverse_sqrt_schedule(o, 7, timescale=7),
}
OURS = {
    "linear": Schedule(kind="linear", warmup=7, final_fraction=0.0),
    "power": Schedule(kind="power", warmup=7, final_fraction=0.2, options={"exponent": 3.0}),
    "wsd": Schedule(
        kind="wsd", warmup=7, initial_fraction=0.2, final_fraction=0.2, options={"decay": 0.3}
    ),
    "inverse_sqrt": Schedule(kind="inverse_sqrt", warmup=7),
}


@pytest.mark.parametrize("kind", THEIRS)
def test_schedules_are_those_of_transformers(kind):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule, expected = THEIRS[kind](optimizer), []
    for _ in range(50):
        optimizer.step()
        schedule.step()
        expected.append(optimizer.param_groups[0]["lr"])
    assert rates(OURS[kind], 50) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_schedule_of_ones_own(tmp_path):
    (tmp_path / "ideas.py").write_text(
        "from paribus.extend import Options, schedule\n"
        "class Steps(Options):\n    after: float = 0.5\n"
        "@schedule('steps', options=Steps)\n"
        "def steps(at, options):\n    return 1.0 if at.progress <= options.after else 0.1\n"
        "@schedule('broken')\ndef broken(at, options):\n    return -1.0\n"
    )
    spec = Schedule(kind="ideas.py:steps", warmup=2, options={"after": 0.25})
    found = Scheduled(spec, 6, folder=tmp_path)
    assert [found.value(2.0, t) for t in range(6)] == [1.0, 2.0, 2.0, 0.2, 0.2, 0.2]
    broken = Scheduled(Schedule(kind="ideas.py:broken"), 6, folder=tmp_path)
    with refused("own_code", match=r"-1.0 at step 3"):
        broken.value(1.0, 3)
    with refused("unknown", match="cosine"):
        Scheduled(Schedule(kind="cosin"), 6)


def test_what_is_scheduled_is_what_pytorch_is_given():
    text = """
iterations = 6
[optimizer]
name = "sgd"
learning_rate = 0.1
weight_decay = 0.2
options = { momentum = 0.9 }
groups = [{ match = "b", learning_rate = 0.5, schedule = { kind = "linear", warmup = 2 } }]
[schedule]
kind = "cosine"
[schedules.momentum]
warmup = 4
initial_fraction = 0.5
[schedules.weight_decay]
kind = "power"
final_fraction = 0.0
"""
    training = Training.model_validate(tomllib.loads(text))
    setting = Setting(training=training)
    assert scheduled_columns(training) == (
        *("learning_rate_0", "momentum_fraction", "weight_decay_fraction"),
    )
    schedules = Schedules([setting], None)
    model = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.ones(3, 4)) for n in "ab"})
    sgd = find_optimizer("sgd", "here", None)
    options = read_options(sgd.options, {"momentum": 0.9}, "options", "sgd")
    groups = [
        ParameterGroup(sgd, options, ("a",), ("a",), (1.0,), (0.2,)),
        ParameterGroup(sgd, options, ("b",), ("b",), (5.0,), (0.2,), "learning_rate_0"),
    ]
    weights = as_rows({n: p.detach()[None].clone() for n, p in model.items()})
    ours = StackedOptimizer(groups, weights, scheduled_columns(training))
    theirs = torch.optim.SGD([{"params": [p]} for p in model.values()], lr=1.0)
    generator = torch.Generator().manual_seed(0)
    for t in range(6):
        grads = {n: torch.randn(3, 4, generator=generator) for n in "ab"}
        rates_R, scheduled_SR = (torch.from_numpy(x) for x in schedules.at(t))
        flat = as_rows({n: g[None].clone() for n, g in grads.items()}).flat
        ours.update(flat, rates_R[:, None], torch.tensor(t), scheduled_SR[..., None])
        ramp = min((t + 1) / 4, 1.0)
        line = 0.5 * (t + 1) / 2 if t < 2 else 0.5 * (1 - 0.9 * (t - 1) / 4)
        cosine = 0.1 * (0.1 + 0.45 * (1 + math.cos(math.pi * (t + 1) / 6)))
        for group, rate in zip(theirs.param_groups, (cosine, line), strict=True):
            group |= {"lr": rate, "weight_decay": 0.2 * (1 - (t + 1) / 6) ** 2}
            group["momentum"] = 0.9 * (0.5 + 0.5 * ramp)
        for name, parameter in model.items():
            parameter.grad = grads[name].clone()
        theirs.step()
    for name, parameter in model.items():
        torch.testing.assert_close(weights[name][0], parameter.detach(), rtol=1e-5, atol=1e-6)
