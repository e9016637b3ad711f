"""Mean of the weights of the last steps (stochastic weight averaging, Izmailov et al. 2018)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from paribus.engine.training.averages import Options, Taken, average


class LastOptions(Options):
    """Share of the run, at its end, whose steps are averaged."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.1


def _number(at: Taken) -> int:
    """Return the number of averaged steps, including this one; at most 0 before the first."""
    return at.done - at.steps + max(round(at.options.share * at.steps), 1)


def mean(at: Taken) -> Tensor | None:
    """Return the mean, or None before the first averaged step."""
    return at.kept[0] if _number(at) > 0 else None


@average("last", give=mean, options=LastOptions, source="Izmailov et al. 2018")
def last(at: Taken) -> None:
    """Write a += (w - a) / n at the nth of these steps."""
    n = _number(at)
    if n > 0:
        at.kept[0].lerp_(at.weights, 1 / n)
