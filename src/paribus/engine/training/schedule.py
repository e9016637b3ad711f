"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from paribus.study.spec import Schedule


def learning_rate(peak: float, schedule: Schedule, t: int, iterations: int) -> float:
    """The learning rate of step t = 0, 1, ..., iterations - 1.

    Linear warmup: peak (t + 1) / warmup, so that step warmup - 1 is at the peak. After it the rate
    stays (constant), or falls along half a cosine (Loshchilov & Hutter 2017) that reaches
    `final_fraction` of the peak at the last step.
    """
    if t < schedule.warmup:
        return peak * (t + 1) / schedule.warmup
    if schedule.kind == "constant":
        return peak
    decay_steps = iterations - schedule.warmup
    progress = (t - schedule.warmup + 1) / decay_steps
    cosine = (1 + math.cos(math.pi * progress)) / 2
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * cosine)
