"""Whether a model gets worse where its window ends."""

from __future__ import annotations

import numpy as np

from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import Row, whole

EDGE = 8  # positions


def _difference(sums: np.ndarray, seq_len: int) -> list[Row]:
    (edge, n_edge), (middle, n_middle) = sums.tolist()
    return [Row("all", edge / n_edge - middle / n_middle)] if n_edge else []


@measure(
    "edge_loss",
    label="loss at the edge of the window",
    unit="nats/token",
    source="own definition: the last positions of the window against its middle half",
    parts=(whole,),
    drawings=(),
    finish=_difference,
)
def edge_loss(predictions: Predictions) -> np.ndarray:
    """Mean loss of the last 8 positions minus that of the middle half. No ratio of sums.

    More context should make it negative; above zero, the edge is harder than the middle. The edge
    is at most a quarter of the window, so that the two do not meet. There is no row where a window
    has fewer than 4 positions, or no window is whole enough to have an edge.
    """
    quarter = predictions.seq_len // 4
    position, losses = predictions.position, predictions.loss_nats
    is_edge = position >= predictions.seq_len - min(EDGE, quarter)
    is_middle = (position >= quarter) & (position < predictions.seq_len - quarter)
    of_each = (losses[chosen] for chosen in (is_edge, is_middle))
    return np.array([(found.sum(dtype=np.float64), len(found)) for found in of_each])
