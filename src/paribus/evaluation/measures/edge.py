"""Whether a model gets worse where its window ends."""

from __future__ import annotations

from paribus.evaluation.measures import measure
from paribus.evaluation.predictions import Predictions
from paribus.evaluation.text_parts import Row, whole

EDGE = 8  # positions


@measure(
    "edge_loss",
    label="loss at the edge of the window",
    unit="nats/token",
    source="own definition: the last positions of the window against its middle half",
    parts=(whole,),
)
def edge_loss(predictions: Predictions) -> list[Row]:
    """Mean loss of the last 8 positions minus that of the middle half. No ratio of sums.

    More context should make it negative; above zero, the edge is harder than the middle. The edge
    is at most a quarter of the window, so that the two do not meet. There is no row where a window
    has fewer than 4 positions, or no window is whole enough to have an edge.
    """
    quarter = predictions.seq_len // 4
    position, losses = predictions.position, predictions.loss_nats
    edge = losses[position >= predictions.seq_len - min(EDGE, quarter)]
    middle = losses[(position >= quarter) & (position < predictions.seq_len - quarter)]
    if not len(edge):
        return []
    return [Row("all", float(edge.mean(dtype="float64") - middle.mean(dtype="float64")))]
