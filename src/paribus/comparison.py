"""Comparison of recorded values with values recomputed on any machine.

Discrete values (counts, names, outcomes, digests) must be equal. Floating-point numbers may differ
by rounding: processors sum in different orders, and their exponentials differ in the last bit. The
largest relative difference over all archived studies and tested processors was 3e-13; `TOLERANCE`
is larger to allow for worse-conditioned problems. At most six digits are printed, so any visible
change is at least a thousand times larger than the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

TOLERANCE = 1e-9  # of a number, or absolute: the difference of two arms may be near 0


def differences(
    stated: Any, fresh: Any, ignored: Collection[str] = (), *, key: str = ""
) -> Iterator[str]:
    """Yield the dotted keys at which two JSON values differ by more than rounding errors.

    Args:
        ignored: keys to skip, at any depth.
    """
    if isinstance(stated, list | tuple) and isinstance(fresh, list | tuple):
        stated, fresh = dict(enumerate(stated)), dict(enumerate(fresh))
    if isinstance(stated, dict) and isinstance(fresh, dict):
        for name in sorted((stated.keys() | fresh.keys()) - set(ignored)):
            inner = f"{key}.{name}" if key else str(name)
            if name not in stated or name not in fresh:
                yield inner
            else:
                yield from differences(stated[name], fresh[name], ignored, key=inner)
    elif isinstance(stated, float) and isinstance(fresh, float):
        if not math.isclose(stated, fresh, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield key
    elif type(stated) is not type(fresh) or stated != fresh:  # two integers are counts
        yield key


def agree(stated: Any, fresh: Any) -> bool:
    """Return whether two JSON values are equal up to rounding errors."""
    return next(differences(stated, fresh), None) is None
