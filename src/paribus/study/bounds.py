"""How large a study may be: far more than anybody trains, far less than what hangs it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST_STEPS = 10**7
MOST_SEEDS = 100_000
MOST_ARMS = 256
MOST_ENTRIES = 1_000  # of any other list or table
MOST_RESAMPLES = 10**6

Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
# Keys of random streams, which records keep as 64-bit numbers.
MOST_SEED = 2**63 - 1
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
