"""Named random streams.

Every random number comes from a stream named after its purpose, so that uses are independent: if
an arm draws more numbers, an evaluation runs more often or the number of workers changes, all other
streams stay the same. Global generators are never used.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, *purpose: str | int) -> int:
    """Return the 128-bit key of the stream identified by `seed` and `purpose`."""
    name = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")


def stream(seed: int, *purpose: str | int, position: int = 0) -> np.random.Generator:
    """Return a generator for the stream identified by `seed` and `purpose`.

    Philox is counter-based (Salmon et al. 2011), so `position` skips ahead to an independent
    substream at no cost: batch t uses position t without generating earlier batches.
    """
    # The counter's lowest word counts the draws themselves; the position sits above it.
    counter = position << 128
    return np.random.Generator(np.random.Philox(key=key(seed, *purpose), counter=counter))
