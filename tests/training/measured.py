"""Training and resuming, for tests that compare trainers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paribus.engine.training import Trainer


def train(trainer: Trainer, steps: int) -> np.ndarray:
    """[R, steps, C] what was measured."""
    for _ in range(steps):
        trainer.step()
    return np.stack([trainer.state(r).measured for r in range(len(trainer.seeds))])


def require_resumes(make: Callable[[], Trainer], steps: int, done: int) -> tuple[Trainer, Trainer]:
    """Require the same bits of training in one go and with a restart after `done` steps.

    Returns the trainer that was not interrupted, and the one that went on.
    """
    straight, begun, after = make(), make(), make()
    replicas = range(len(straight.seeds))
    train(straight, steps)
    train(begun, done)
    after.restore([begun.state(r) for r in replicas])
    train(after, steps - done)
    assert after.batch_digests == straight.batch_digests
    for r in replicas:
        expected, found = straight.state(r).arrays, after.state(r).arrays
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert found[name].tobytes() == values.tobytes(), name
    return straight, after
