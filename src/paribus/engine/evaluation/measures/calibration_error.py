"""Whether confidence is accuracy: the expected calibration error, with two kinds of bins."""

from __future__ import annotations

import numpy as np

from paribus.engine.evaluation.bins import CELLS, by_cell, equal_mass, equal_width, gap_sum, tally
from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import Row, whole


def _error(tally: np.ndarray, seq_len: int) -> list[Row]:
    return [Row.ratio("all", gap_sum(tally), int(tally[0].sum()))]


@measure(
    "calibration_error",
    better="lower",
    unit="share",
    source="Guo et al. 2017 (arXiv 1706.04599), equation 3: 15 bins of equal width",
    parts=(whole,),
    drawings=(),
    finish=_error,
)
def calibration_error(predictions: Predictions) -> np.ndarray:
    """The mean over bins of |accuracy - confidence| of the most probable token."""
    confidence = predictions.confidence
    return tally(equal_width(confidence), confidence, predictions.correct)


@measure(
    "calibration_error_equal_mass",
    better="lower",
    label="calibration error, bins of equal mass",
    unit="share",
    source="Nguyen & O'Connor 2015 (arXiv 1508.05154), adaptive binning: 15 bins of equal mass",
    parts=(whole,),
    drawings=(),
    finish=lambda tally, seq_len: _error(equal_mass(tally), seq_len),
)
def calibration_error_equal_mass(predictions: Predictions) -> np.ndarray:
    """The same with bins of as many tokens each (see `equal_mass` for equal confidences)."""
    confidence = predictions.confidence
    return tally(by_cell(confidence), confidence, predictions.correct, CELLS)
