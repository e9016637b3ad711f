"""What more context is worth."""

from __future__ import annotations

import numpy as np

from paribus.drawing import Drawing
from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import CONTEXT_STEP, contexts, grouped


@measure(
    "context_loss",
    better="lower",
    label="loss by context",
    unit="nats/token",
    source="loss by token index, as Kaplan et al. 2020 (arXiv 2001.08361)",
    parts=(contexts,),
    drawings=(
        Drawing(
            "context {}",
            "curve",
            "Loss by length of context",
            "loss (nats/token)",
            "evaluation",
            across="context (tokens)",
            in_text=True,
        ),
    ),
)
def context_loss(predictions: Predictions) -> np.ndarray:
    """The mean loss of the tokens predicted from c - 7 to c tokens, as "context c".

    A causal model's prediction at a position depends on the tokens of its window up to there and on
    nothing after them: a context cut to c tokens would give the same logits as the first c
    positions of the window do. So this costs no further pass, and since windows start at the same
    tokens in every arm, each length is compared on the same predictions. The last part is shorter
    where 8 does not divide seq_len.
    """
    n = len(contexts(predictions.seq_len))
    return grouped(n, predictions.position // CONTEXT_STEP, predictions.loss_nats)
