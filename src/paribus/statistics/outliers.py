"""Signs that few values are not normal: a single outlier, skewness."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy


def outlier(values: Sequence[float], alpha: float = 0.01) -> int | None:
    """Return the place of the one value that lies too far from the others; None where none does.

    Grubbs' two-sided test at `alpha` (Grubbs 1950, Annals of Mathematical Statistics 21, 27-58).
    """
    x = np.asarray(values, dtype=float)
    n, sd = len(x), float(np.std(x, ddof=1)) if len(x) > 2 else 0.0
    if n < 3 or not sd > 0:
        return None
    distances = np.abs(x - x.mean()) / sd
    t2 = float(scipy.special.stdtrit(n - 2, alpha / (2 * n))) ** 2
    critical = (n - 1) / math.sqrt(n) * math.sqrt(t2 / (n - 2 + t2))
    place = int(distances.argmax())
    return place if distances[place] > critical else None


def skewness(values: Sequence[float]) -> tuple[float, float]:
    """Return the sample skewness G1 and its standard error for normal values; zeros if undefined.

    Joanes and Gill (1998, The Statistician 47, 183-189).
    """
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < 3 or not np.ptp(x) > 0:
        return 0.0, 0.0
    deviations = (x - x.mean()) / np.ptp(x)  # of any magnitude
    g1 = float((deviations**3).mean() / (deviations**2).mean() ** 1.5)
    error = math.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    return g1 * math.sqrt(n * (n - 1)) / (n - 2), error
