"""Comparison of recorded values with recomputed ones, possibly from another machine.

Discrete values (counts, names, outcomes, digests) must be equal. Floating-point numbers may differ
by rounding: processors add in different orders, and their exponentials differ in the last bit.
Over all kept studies and the processors that were tried, the largest relative difference was 3e-13.
`TOLERANCE` leaves room for problems that are worse conditioned. At most six digits are printed, so
a change that a reader could see is at least a thousand times larger and is detected.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

TOLERANCE = 1e-9  # of a number, or absolute: the difference of two arms may be near 0


def differences(
    stated: Any, fresh: Any, ignored: Collection[str] = (), *, key: str = ""
) -> Iterator[str]:
    """Yield the dotted keys at which two JSON values differ by more than rounding.

    Args:
        ignored: keys that are not compared, at any depth.
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
    """Return whether two JSON values are equal up to rounding."""
    return next(differences(stated, fresh), None) is None
