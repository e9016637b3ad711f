"""Schedules by hand and against those of transformers."""

import math
from pathlib import Path

import pytest
import torch
import transformers

from paribus.engine.setting import Setting
from paribus.engine.setting.setting import Optimizer, Schedule, Training
from paribus.engine.training.schedules import LearningRates

from ..tools import refused


def rates(
    schedule: Schedule, iterations: int, *, peak: float = 1.0, folder: Path | None = None
) -> list[float]:
    optimizer = Optimizer(learning_rate=peak)
    training = Training(iterations=iterations, schedule=schedule, optimizer=optimizer)
    learning_rates = LearningRates([Setting(training=training)], folder)
    return [learning_rates.at(t).item() for t in range(iterations)]


ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1.0, 1.0, 1.0]),
        (Schedule(warmup=4), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        # After 2 steps of warmup half a cosine from 1 to 0.1: 0.1 + 0.45 (1 + cos(pi k / 4)).
        (
            Schedule(kind="cosine", warmup=2),
            [0.5, 1.0, 0.1 + 0.45 * (1 + ROOT), 0.55, 0.1 + 0.45 * (1 - ROOT), 0.1],
        ),
        (Schedule(kind="cosine", final_fraction=0.0), [(1 + ROOT) / 2, 0.5, (1 - ROOT) / 2, 0.0]),
        # The last four of ten steps decay to 0: 1 - sqrt(k / 4).
        (
            Schedule(kind="wsd", final_fraction=0.0, options={"decay": 0.4, "shape": "sqrt"}),
            [1.0] * 6 + [0.5, 1 - ROOT, 1 - 0.75**0.5, 0.0],
        ),
    ],
)
def test_schedules_by_hand(schedule, expected):
    assert rates(schedule, len(expected)) == pytest.approx(expected, rel=1e-6, abs=1e-7)


# Those of transformers count steps from 0 and begin at a rate of 0: their step t + 1 is ours at t.
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            Schedule(kind="linear", warmup=7, final_fraction=0.0),
            lambda o: transformers.get_linear_schedule_with_warmup(o, 7, 50),
        ),
        (
            Schedule(kind="wsd", warmup=7, final_fraction=0.0, options={"decay": 0.3}),
            lambda o: transformers.get_wsd_schedule(
                o, 7, 15, num_training_steps=50, decay_type="linear"
            ),
        ),
    ],
    ids=["linear", "wsd"],
)
def test_schedules_are_those_of_transformers(ours, theirs):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule, expected = theirs(optimizer), []
    for _ in range(50):
        optimizer.step()
        schedule.step()
        expected.append(optimizer.param_groups[0]["lr"])
    assert rates(ours, 50) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_a_schedule_of_ones_own(tmp_path):
    (tmp_path / "ideas.py").write_text(
        "from paribus.extend import Options, schedule\n"
        "class Steps(Options):\n    after: float = 0.5\n"
        "@schedule('steps', options=Steps)\n"
        "def steps(at, options):\n    return 1.0 if at.progress <= options.after else 0.1\n"
        "@schedule('broken')\ndef broken(at, options):\n    return -1.0\n"
    )
    spec = Schedule(kind="ideas.py:steps", warmup=2, options={"after": 0.25})
    expected = [1.0, 2.0, 2.0, 0.2, 0.2, 0.2]
    assert rates(spec, 6, peak=2.0, folder=tmp_path) == pytest.approx(expected)
    with refused("own_code", match=r"-1.0 at step 0"):
        rates(Schedule(kind="ideas.py:broken"), 6, folder=tmp_path)
    with refused("unknown", match="cosine"):
        rates(Schedule(kind="cosin"), 6)
