"""Distribution functions: SciPy's, imported when first called, and one that it has less well.

Importing SciPy takes half a second of a core and 40 MiB. A command that trains waits for neither,
and a worker that only trains has neither.

The noncentral t of SciPy (`stats.nct`, `special.nctdtr`; tried up to 1.17.1) is NaN where t is
negative and the noncentrality large, and its quantiles are off by 1e-9 of the value where t is in
the thousands. Here, by quadrature: T = (Z + ncp) / s, with Z normal and
s = chi_df / sqrt(df) (Johnson, Kotz and Balakrishnan 1995, ch. 31), so for t >= 0

    P(T <= t) = integral of phi(z) P(s >= (z + ncp) / t) dz,

where the inner probability is 1 below z = t s_min - ncp and 0 above z = t s_max - ncp. Between
those limits both factors are smooth, and a fixed Gauss-Legendre rule is accurate to about 1e-13.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np


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
stdtrit = _Later("scipy.special.stdtrit")


def root(
    function: Callable[[float], float], low: float, high: float, *, within: float = 1e-13
) -> float:
    """Return where a continuous function changes its sign between `low` and `high`.

    By Chandrupatla's method (1997, Advances in Engineering Software 28, 145-149), to `within` and
    the last bits of a double. SciPy has it, in a module that takes longer to import than a verdict.
    Raises ValueError where both ends have one sign.
    """
    a, b, fa, fb = high, low, function(high), function(low)
    if fa == 0 or fb == 0:
        return a if fa == 0 else b
    if (fa > 0) == (fb > 0):
        raise ValueError(f"the function has one sign at {low:g} and {high:g}")
    c, fc, t = a, fa, 0.5
    for _ in range(MOST_STEPS):
        x = a + t * (b - a)
        fx = function(x)
        if (fx > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, b, fc, fb = b, a, fb, fa
        a, fa = x, fx
        best, least = (a, abs(fa)) if abs(fa) < abs(fb) else (b, abs(fb))
        if least == 0 or a == b:
            return best
        limit = (ROUNDING * abs(best) + within / 2) / abs(b - a)
        if limit > 0.5:
            return best
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        t = 0.5
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:  # inverse quadratic interpolation is safe
            t = fa / (fb - fa) * fc / (fb - fc)
            t += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = min(1 - limit, max(limit, t))
    return a


MOST_STEPS, ROUNDING = 200, 4e-16  # of `root`
NEGLIGIBLE = 1e-17  # probability below double precision
NORMAL_REACH = 9.0  # |z| beyond which the normal has negligible mass
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def noncentral_t_cdf(t: float, df: float, ncp: float) -> float:
    """P(T <= t) of the noncentral t with `df` degrees of freedom; never NaN for finite input."""
    if t < 0:
        return 1.0 - noncentral_t_cdf(-t, df, -ncp)
    least, most = _chi_range(df)
    low, high = (max(-NORMAL_REACH, min(NORMAL_REACH, t * s - ncp)) for s in (least, most))
    below = float(ndtr(t * least - ncp))
    if high == low:
        return below
    z = low + (high - low) * (NODES + 1) / 2
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    chance = chdtrc(df, df * np.maximum((z + ncp) / t, 0.0) ** 2)
    return min(1.0, below + math.fsum(WEIGHTS * density * chance) * (high - low) / 2)


def noncentrality_interval(t: float, df: float, level: float) -> tuple[float, float]:
    """Return the noncentralities under which an observed t is in neither (1 - level) / 2 tail.

    Inverts the distribution function (Steiger and Fouladi 1997), which decreases in ncp.
    """
    ends = [t * s for s in _chi_range(df)]
    # Whole numbers: the steps of the root finder must not follow the last bit of t.
    low, high = math.floor(min(ends) - NORMAL_REACH), math.ceil(max(ends) + NORMAL_REACH)
    tail = (1 - level) / 2

    def bound(probability: float) -> float:
        return root(lambda ncp: noncentral_t_cdf(t, df, ncp) - probability, low, high)

    return bound(1 - tail), bound(tail)


@lru_cache
def _chi_range(df: float) -> tuple[float, float]:
    """Limits of s = chi_df / sqrt(df) outside which it has negligible mass."""
    least = 2 * gammaincinv(df / 2, NEGLIGIBLE)
    most = 2 * gammainccinv(df / 2, NEGLIGIBLE)
    return math.sqrt(float(least) / df), math.sqrt(float(most) / df)


def fisher_exact(first: int, second: int, n_first: int, n_second: int) -> float:
    """Two-sided p of Fisher's exact test for `first` of `n_first` against `second` of `n_second`.

    The sum over all tables of these margins that are no likelier than the one seen.
    """
    struck = first + second
    tables = range(max(0, struck - n_second), min(struck, n_first) + 1)
    ways = [math.comb(n_first, k) * math.comb(n_second, struck - k) for k in tables]
    seen = ways[first - tables.start]
    return sum(way for way in ways if way <= seen) / sum(ways)
