"""The generators that every library of a process shares; nothing of ours draws from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's, NumPy's and PyTorch's global generators start from `seed` inside, and are put back.

    What does not depend on them gives the same bits inside and outside.
    """
    python, of_numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)
        _seed_torch(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(of_numpy)


def _seed_torch(seed: int) -> None:
    """As `torch.manual_seed`, which without a GPU notes each call, with the way to it, for one."""
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
