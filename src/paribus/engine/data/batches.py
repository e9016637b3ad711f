"""Training batches. Batch t of a seed is a pure function of (seed, t).

Nothing else enters: not the arm, the device, the number of workers, nor how often one evaluates.
The running digest proves it afterwards.
"""

from __future__ import annotations

import hashlib

import numpy as np

from paribus.engine.data.mixture import Mixture
from paribus.engine.data.order import Windows
from paribus.engine.data.tokens import Tokens, windows

FIRST_DIGEST = hashlib.sha256(b"paribus batches").hexdigest()


def batch(
    tokens: Tokens,
    seed: int,
    t: int,
    batch_size: int,
    seq_len: int,
    order: Windows | Mixture | None = None,
    run: int | None = None,
) -> np.ndarray:
    """Batch `t` of `seed`: [batch_size, seq_len + 1] token ids, int64.

    Windows start as `order` has it: by default uniformly and with replacement anywhere in `tokens`
    (as in nanoGPT). `run` is how many batches the whole run has, for an order that goes by it.
    Inputs are `[:, :-1]` and targets `[:, 1:]`.
    """
    starts = (order or Windows(len(tokens), seq_len)).starts(seed, t, batch_size, run)
    return windows(tokens, starts, seq_len + 1).astype(np.int64)


def extend_digest(running: str, windows: np.ndarray) -> str:
    """The digest of all batches so far, from that of the earlier ones and the newest batch."""
    return hashlib.sha256(bytes.fromhex(running) + windows.astype("<u4").tobytes()).hexdigest()
