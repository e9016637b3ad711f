"""How much of a one-sided level may be used up by each look: error spending functions.

| name | spent at information fraction t, of the one-sided level a | like |
| --- | --- | --- |
| `obrien_fleming` | 2 - 2 Phi(z / sqrt(t)), z the upper a / 2 quantile | O'Brien and Fleming |
| `pocock` | a ln(1 + (e - 1) t) | Pocock |

Lan and DeMets (1983), Biometrika 70, 659-663. The first spends almost nothing early, so that its
last look costs little power; the second spends more evenly and stops earlier. All is computed on
the log scale: at a quarter of the information the first spends 1e-16 of a level of 1e-5.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from paribus.statistics.conventions import Floats
from paribus.statistics.scipy_later import log_ndtr, ndtri

Spending = Literal["obrien_fleming", "pocock"]

# Above this one-sided level the increments of `obrien_fleming` begin to fall as the level rises
# (Maurer and Bretz 2013, section 3): what is above is spent at the last look.
MONOTONE_TO = 0.3


def log_spent(spending: Spending, levels: Floats, fraction: float) -> Floats:
    """Logarithm of what is spent up to information `fraction` in (0, 1], of one-sided `levels`."""
    capped = np.minimum(levels, MONOTONE_TO)
    if fraction == 1:
        return np.log(levels)
    if spending == "pocock":
        return np.log(capped) + math.log(math.log1p((math.e - 1) * fraction))
    return math.log(2) + log_ndtr(ndtri(capped / 2) / math.sqrt(fraction))
