"""The held-out loss curve of a study: at which steps it is measured, and whether it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paribus.engine.setting.sections import Evaluation

if TYPE_CHECKING:
    from paribus.study.study import Study

MOST_POINTS = 10_000  # of one trial


def curve_steps(study: Study, arm: str) -> tuple[int, ...]:
    """Return steps done where the held-out loss of `arm` is measured: 0, every so many, and the
    last.

    Where batches grow, `evaluation.every` counts steps of the last size: a point is after the first
    step with as many tokens, so that arms are measured at equal tokens. Empty where the study
    measures no curve.
    """
    every, setting = study.evaluation.every, study.setting(arm)
    if every is None:
        return ()
    size, last = setting.training.largest_batch, setting.iterations
    regular = range(0, setting.budget_iterations, every)
    return tuple(dict.fromkeys([*(setting.step_with(k * size) for k in regular), last]))


def why_no_curve(evaluation: Evaluation, arm: str, iterations: int) -> str:
    """Why an arm of so many iterations has no such curve, in a line; empty where it has one."""
    every = evaluation.every
    if every is None:
        if evaluation.target is not None:
            return (
                f"evaluation.target = {evaluation.target:g} needs a curve that reaches it; state "
                "evaluation.every, the steps between two points"
            )
        return ""
    if every > iterations:
        return (
            f"evaluation.every = {every} is more than the {iterations} iterations of arm '{arm}'; "
            "a curve needs points on the way: state fewer steps"
        )
    if iterations // every > MOST_POINTS:
        return (
            f"evaluation.every = {every} of {iterations:,} iterations are {iterations // every:,} "
            f"points; {MOST_POINTS:,} are the most: state more steps"
        )
    return ""
