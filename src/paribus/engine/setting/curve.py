"""Steps of the held-out loss curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paribus.engine.setting.sections import Evaluation
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.study.study import Study

MOST_POINTS = 10_000  # of one trial


def curve_steps(study: Study, arm: str) -> tuple[int, ...]:
    """Return the numbers of steps after which the held-out loss of `arm` is measured.

    These are 0, every `evaluation.every` steps, and the last. With a growing batch,
    `evaluation.every` counts steps of the last size, so that arms are measured at equal tokens.
    Empty if the study measures no curve.
    """
    every, setting = study.evaluation.every, study.setting(arm)
    if every is None:
        return ()
    size, last = setting.training.largest_batch, setting.iterations
    regular = range(0, setting.budget_iterations, every)
    return tuple(dict.fromkeys([*(setting.step_with(k * size) for k in regular), last]))


def require_curve(evaluation: Evaluation, arm: str, iterations: int) -> None:
    """Raise ParibusError if an arm cannot have the curve of `evaluation`."""
    every = evaluation.every
    if every is None and evaluation.target is not None:
        raise ParibusError(
            f"evaluation.target = {evaluation.target:g} needs a curve that reaches it; set "
            "evaluation.every, the steps between two points",
            code="missing",
        )
    if every is not None and not 1 <= iterations // every <= MOST_POINTS:
        raise ParibusError(
            f"evaluation.every = {every} of the {iterations:,} iterations of arm '{arm}' gives "
            f"{iterations // every:,} points; set a number for 1 to {MOST_POINTS:,}"
        )
