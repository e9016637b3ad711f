"""Mean of the weights of the last steps (stochastic weight averaging, Izmailov et al. 2018)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paribus.engine.training.averages import Options, Taken, average


class LastOptions(Options):
    """Share of the run, at its end, whose steps are averaged."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.1


@average("last", options=LastOptions, source="Izmailov et al. 2018")
def last(at: Taken) -> None:
    """Write a += (w - a) / n at the nth of these steps; before them, a is w."""
    n = at.done - at.steps + max(round(at.options.share * at.steps), 1)
    at.kept.lerp_(at.weights, 1 / max(n, 1))
