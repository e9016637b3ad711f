"""Named random streams.

Every random number of a study comes from a stream that is named by what it is for, so that one
use cannot disturb another: an arm that draws more, an evaluation that runs more often or another
number of workers changes nobody else's numbers. The global generators are never used.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, *purpose: str | int) -> int:
    """Return a 128-bit key for the stream that `purpose` names under `seed`."""
    name = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")


def stream(seed: int, *purpose: str | int, position: int = 0) -> np.random.Generator:
    """Return the generator of the stream that `purpose` names under `seed`.

    Philox is counter-based (Salmon et al. 2011), so `position` jumps to an independent place of
    the same stream at no cost: batch t is read at position t without drawing those before it.
    """
    # The counter's lowest word counts the draws themselves; the position sits above it.
    counter = position << 128
    return np.random.Generator(np.random.Philox(key=key(seed, *purpose), counter=counter))
