"""Loss in a unit that does not depend on the tokenizer."""

from __future__ import annotations

import math

import numpy as np

from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import BREAKDOWN, breakdown
from paribus.metric import ItemSums


@measure(
    "bits_per_character",
    better="lower",
    unit="bits/character",
    of_tokens=False,
    # The text is the same in all items of all tokenizers; bits of ends count, as in the whole.
    items=ItemSums("loss_sum_nats", "characters", 1 / math.log(2)),
    source="Shannon 1951; per character of the text, as Graves 2013",
    parts=BREAKDOWN,
    drawings=(),
)
def bits_per_character(predictions: Predictions) -> np.ndarray:
    """Summed loss in bits over the characters that the predicted tokens stand for.

    Of the whole, the bits of end-of-document tokens are counted although these have no characters:
    the text cannot be told without them. As a class of their own they have no row.
    """
    # In float64, so that the sum over blocks of the loss gives the same bits.
    bits = predictions.loss_nats.astype(np.float64) / math.log(2)
    return breakdown(predictions, bits, predictions.characters)
