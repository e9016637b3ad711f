"""Whether confidence is accuracy: the expected calibration error, with two kinds of bins."""

from __future__ import annotations

import numpy as np

from paribus.evaluation.bins import equal_mass, equal_width, gap_sum, tally
from paribus.evaluation.measures import measure
from paribus.evaluation.predictions import Predictions
from paribus.evaluation.text_parts import Row, whole


@measure(
    "calibration_error",
    better="lower",
    unit="share",
    source="Guo et al. 2017 (arXiv 1706.04599), equation 3: 15 bins of equal width",
    parts=(whole,),
)
def calibration_error(predictions: Predictions) -> list[Row]:
    """The mean over bins of |accuracy - confidence| of the most probable token."""
    return _error(predictions, equal_width(predictions.confidence))


@measure(
    "calibration_error_equal_mass",
    better="lower",
    label="calibration error, bins of equal mass",
    unit="share",
    source="Nguyen & O'Connor 2015 (arXiv 1508.05154), adaptive binning: 15 bins of equal mass",
    parts=(whole,),
)
def calibration_error_equal_mass(predictions: Predictions) -> list[Row]:
    """The same with bins of as many tokens each (see `equal_mass` for equal confidences)."""
    return _error(predictions, equal_mass(predictions.confidence))


def _error(predictions: Predictions, index: np.ndarray) -> list[Row]:
    total = gap_sum(tally(index, predictions.confidence, predictions.correct))
    return [Row.ratio("all", total, len(predictions))]
