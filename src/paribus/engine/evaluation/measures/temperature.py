"""Sensitivity to the softmax temperature: logits / T in place of logits.

A model that is too sure of itself has its lowest loss at some T > 1, one that is too unsure at
T < 1. How far that temperature is from 1 is the drift of the model's calibration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paribus.drawing import Drawing
from paribus.engine.evaluation.bins import equal_width, gap_sum, tally
from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import TEMPERATURES, Predictions
from paribus.engine.evaluation.text_parts import Row, temperatures, whole

SOURCE = "temperature scaling, Guo et al. 2017 (arXiv 1706.04599), section 4.2"


@measure(
    "temperature_loss",
    better="lower",
    label="loss by temperature",
    unit="nats/token",
    source=SOURCE,
    parts=(temperatures,),
    drawings=(
        Drawing(
            "T={}",
            "curve",
            "Loss by temperature",
            "loss (nats/token)",
            "evaluation",
            across="softmax temperature",
            log=True,
            note="A model that is too sure of itself is best above 1.",
        ),
    ),
)
def temperature_loss(predictions: Predictions) -> np.ndarray:
    """The validation loss at each temperature."""
    losses = predictions.losses_at
    return np.stack([(at.sum(dtype=np.float64), len(at)) for at in losses])


def _errors(tallies: np.ndarray, seq_len: int) -> list[Row]:
    of_each = zip(temperatures(seq_len), tallies, strict=True)
    return [Row.ratio(name, gap_sum(at), int(at[0].sum())) for name, at in of_each]


@measure(
    "temperature_calibration_error",
    better="lower",
    label="calibration error by temperature",
    unit="share",
    source=SOURCE,
    parts=(temperatures,),
    drawings=(
        Drawing(
            "T={}",
            "curve",
            "Calibration error by temperature",
            "expected calibration error (share)",
            "evaluation",
            across="softmax temperature",
            log=True,
            note="A model that is too sure of itself is best above 1.",
        ),
    ),
    finish=_errors,
)
def temperature_calibration_error(predictions: Predictions) -> np.ndarray:
    """The expected calibration error, with bins of equal width, at each temperature."""
    hits = predictions.correct[predictions.swept]
    return np.stack([tally(equal_width(c), c, hits) for c in predictions.confidences_at])


def _lowest(sums: np.ndarray, seq_len: int) -> list[Row]:
    losses, slopes, counts = sums
    return [Row("all", _zero(1 / np.array(TEMPERATURES), losses / counts, slopes / counts))]


@measure(
    "best_temperature",
    label=f"best softmax temperature from {min(TEMPERATURES):g} to {max(TEMPERATURES):g}",
    digits=3,
    unit="",
    source=SOURCE,
    parts=(whole,),
    drawings=(),
    finish=_lowest,
)
def best_temperature(predictions: Predictions) -> np.ndarray:
    """The temperature of the lowest loss, fitted on the very text that the loss is of.

    The loss is convex in 1 / T, so its slope crosses zero once, between the two temperatures of the
    sweep where it changes sign. There it is that of the polynomial in log T which has the losses
    and the slopes of all temperatures. A minimum outside the sweep is given as the sweep's nearest
    end (0.5 or 2); where no temperature changes the loss (all logits equal), it is 1; where the
    loss is not finite, NaN.
    """
    losses, slopes = predictions.losses_at, predictions.slopes_at
    counts = np.full(len(losses), losses.shape[1], np.float64)
    return np.stack([*(a.sum(axis=1, dtype=np.float64) for a in (losses, slopes)), counts])


def _zero(inverse: np.ndarray, loss: np.ndarray, slope: np.ndarray) -> float:
    """The T at which `slope`, the derivative of `loss` by `inverse` temperature, is zero."""
    if not (np.isfinite(slope).all() and np.isfinite(loss).all()):
        return math.nan
    if not slope.any():
        return 1.0
    # By log T the sign turns, and falling loss has a negative slope as one is used to.
    log_T, slope = -np.log(inverse), -slope * inverse
    if slope[0] >= 0:
        return TEMPERATURES[0]
    if slope[-1] <= 0:
        return TEMPERATURES[-1]
    # Imported when it is needed: it takes half a second, for which the first step would wait.
    from scipy.interpolate import KroghInterpolator
    from scipy.optimize import brentq

    after = int((slope > 0).argmax())
    known = np.stack([loss, slope], axis=1).ravel()  # each place twice: its value, its derivative
    curve = KroghInterpolator(np.repeat(log_T, 2), known)
    ends = log_T[after - 1], log_T[after]
    left, right = (float(curve.derivative(end)) for end in ends)
    if not left < 0 < right:  # it is zero at an end, but for rounding
        return math.exp(ends[int(abs(right) < abs(left))])
    zero: Any = brentq(curve.derivative, *ends)
    return math.exp(zero)
