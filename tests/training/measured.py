"""What a trainer measured, for tests that compare trainers."""

from __future__ import annotations

import numpy as np

from paribus.engine.training import Trainer


def train(trainer: Trainer, steps: int) -> np.ndarray:
    """[R, steps, C] what was measured."""
    for _ in range(steps):
        trainer.step()
    return np.stack([trainer.state(r).measured for r in range(len(trainer.seeds))])
