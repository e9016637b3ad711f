"""The functions of SciPy that are used here, imported when one of them is first called.

SciPy takes half a second of a core and 40 MiB. A command that trains waits for neither, and a
worker that only trains has neither.
"""

from __future__ import annotations

import importlib
import math
from typing import Any


class _Later:
    """A function of a module that is imported when it is called."""

    def __init__(self, path: str) -> None:
        self._module, _, self._name = path.rpartition(".")
        self._function: Any = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._function is None:
            self._function = getattr(importlib.import_module(self._module), self._name)
        return self._function(*arguments, **options)


quad = _Later("scipy.integrate.quad")
brentq = _Later("scipy.optimize.brentq")
bdtr = _Later("scipy.special.bdtr")
betaincinv = _Later("scipy.special.betaincinv")
chdtrc = _Later("scipy.special.chdtrc")
gammainccinv = _Later("scipy.special.gammainccinv")
gammaincinv = _Later("scipy.special.gammaincinv")
gammaln = _Later("scipy.special.gammaln")
log_ndtr = _Later("scipy.special.log_ndtr")
ndtr = _Later("scipy.special.ndtr")
ndtri = _Later("scipy.special.ndtri")
stdtr = _Later("scipy.special.stdtr")


def stdtrit(df: float, p: float) -> float:
    """The quantile `p` of Student's t with `df` degrees of freedom.

    By the incomplete beta function (Abramowitz and Stegun 1964, 26.5.27), to rounding in every
    version of SciPy; its own function was off by up to 1e-9 of the value before version 1.17.
    """
    tail = min(p, 1 - p)
    if tail <= 0:
        return math.copysign(math.inf, p - 0.5)
    if tail < 0.25:
        x = float(betaincinv(df / 2, 0.5, 2 * tail))
        t = math.sqrt(df * (1 - x) / x) if x > 0 else math.inf
    else:  # near the median, where 1 - x would cancel
        y = float(betaincinv(0.5, df / 2, 1 - 2 * tail))
        t = math.sqrt(df * y / (1 - y))
    return math.copysign(t, p - 0.5)
