"""Training batches. Batch t of a seed is a pure function of (seed, t).

Nothing else enters: not the arm, the device, the number of workers, nor how often one evaluates.
The running digest proves it afterwards.
"""

from __future__ import annotations

import hashlib

import numpy as np

from paribus.data.tokens import Tokens, windows
from paribus.streams import stream

FIRST_DIGEST = hashlib.sha256(b"paribus batches").hexdigest()


def window_starts(n_tokens: int, seed: int, t: int, batch_size: int, seq_len: int) -> np.ndarray:
    """Where the windows of batch `t` of `seed` start: [batch_size] positions, int64.

    Uniformly and with replacement among all starts that leave room for a window of
    seq_len + 1 tokens (as in nanoGPT).
    """
    return stream(seed, "batches", position=t).integers(n_tokens - seq_len, size=batch_size)


def batch(tokens: Tokens, seed: int, t: int, batch_size: int, seq_len: int) -> np.ndarray:
    """Batch `t` of `seed`: [batch_size, seq_len + 1] token ids, int64.

    Windows start anywhere in `tokens`, as `window_starts` draws them. Inputs are `[:, :-1]` and
    targets `[:, 1:]`.
    """
    starts = window_starts(len(tokens), seed, t, batch_size, seq_len)
    return windows(tokens, starts, seq_len + 1).astype(np.int64)


def extend_digest(running: str, windows: np.ndarray) -> str:
    """The digest of all batches so far, from that of the earlier ones and the newest batch."""
    return hashlib.sha256(bytes.fromhex(running) + windows.astype("<u4").tobytes()).hexdigest()
