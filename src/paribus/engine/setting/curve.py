"""Steps of the held-out loss curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paribus.engine.setting.sections import Evaluation

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


def curve_problem(evaluation: Evaluation, arm: str, iterations: int) -> str:
    """Return the reason why an arm cannot have the curve of `evaluation`; "" if it can."""
    every = evaluation.every
    if every is None:
        if evaluation.target is None:
            return ""
        return (
            f"evaluation.target = {evaluation.target:g} needs a curve that reaches it; set "
            "evaluation.every, the steps between two points"
        )
    if every > iterations:
        return (
            f"evaluation.every = {every} is more than the {iterations} iterations of arm '{arm}'; "
            "set fewer steps"
        )
    if iterations // every > MOST_POINTS:
        return (
            f"evaluation.every = {every} of {iterations:,} iterations are {iterations // every:,} "
            f"points; {MOST_POINTS:,} are the most: set more steps"
        )
    return ""
