"""Sensitivity to the softmax temperature: logits / T in place of logits.

A model that is too sure of itself has its lowest loss at some T > 1, one that is too unsure at
T < 1. How far that temperature is from 1 is the drift of the model's calibration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from paribus.evaluation.bins import gap_sum
from paribus.evaluation.measures import measure
from paribus.evaluation.predictions import TEMPERATURES, Predictions
from paribus.evaluation.text_parts import Row, temperatures, whole

SOURCE = "temperature scaling, Guo et al. 2017 (arXiv 1706.04599), section 4.2"


@measure(
    "temperature_loss",
    better="lower",
    label="loss by temperature",
    unit="nats/token",
    source=SOURCE,
    parts=(temperatures,),
)
def temperature_loss(predictions: Predictions) -> list[Row]:
    """The validation loss at each temperature."""
    return _by_temperature(predictions, predictions.sweep.loss_sum_nats.tolist())


@measure(
    "temperature_calibration_error",
    better="lower",
    label="calibration error by temperature",
    unit="share",
    source=SOURCE,
    parts=(temperatures,),
)
def temperature_calibration_error(predictions: Predictions) -> list[Row]:
    """The expected calibration error, with bins of equal width, at each temperature."""
    return _by_temperature(predictions, [gap_sum(tally) for tally in predictions.sweep.tallies])


def _by_temperature(predictions: Predictions, totals: list[float]) -> list[Row]:
    names = temperatures(predictions.seq_len)
    n = len(predictions.sweep)
    return [Row.ratio(name, total, n) for name, total in zip(names, totals, strict=True)]


@measure(
    "best_temperature",
    label="best softmax temperature",
    digits=3,
    unit="",
    source=SOURCE,
    parts=(whole,),
)
def best_temperature(predictions: Predictions) -> list[Row]:
    """The temperature of the lowest loss, fitted on the very text that the loss is of.

    The loss is convex in 1 / T, so its slope crosses zero once: between the two temperatures of the
    sweep where it changes sign, it is interpolated by a cubic spline in log T. A minimum outside
    the sweep is given as the sweep's nearest end (0.5 or 2); where no temperature changes the loss
    (all logits equal), it is 1; where the loss is not finite, NaN.
    """
    return [Row("all", _zero(1 / np.array(TEMPERATURES), predictions.sweep.slope_sum))]


def _zero(inverse: np.ndarray, slope: np.ndarray) -> float:
    """The T at which `slope`, the loss's derivative by `inverse` temperature, is zero."""
    if not np.isfinite(slope).all():
        return math.nan
    if not slope.any():
        return 1.0
    # By log T the sign turns, and falling loss has a negative slope as one is used to.
    log_T, slope = -np.log(inverse), -slope * inverse
    if slope[0] >= 0:
        return TEMPERATURES[0]
    if slope[-1] <= 0:
        return TEMPERATURES[-1]
    after = int((slope > 0).argmax())
    zero: Any = brentq(CubicSpline(log_T, slope), log_T[after - 1], log_T[after])
    return math.exp(zero)
