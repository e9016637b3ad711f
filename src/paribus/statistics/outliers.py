"""A single outlier among few values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .distributions import stdtrit


def outlier(values: Sequence[float], alpha: float = 0.01) -> int | None:
    """Return the place of the one value that lies too far from the others; None where none does.

    Grubbs' two-sided test at `alpha` (Grubbs 1950, Annals of Mathematical Statistics 21, 27-58).
    """
    x = np.asarray(values, dtype=float)
    n, sd = len(x), float(np.std(x, ddof=1)) if len(x) > 2 else 0.0
    if n < 3 or not sd > 0:
        return None
    distances = np.abs(x - x.mean()) / sd
    t2 = float(stdtrit(n - 2, alpha / (2 * n))) ** 2
    critical = (n - 1) / math.sqrt(n) * math.sqrt(t2 / (n - 2 + t2))
    place = int(distances.argmax())
    return place if distances[place] > critical else None
