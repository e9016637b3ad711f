"""Built-in measures on held-out text, in output order."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from paribus.drawing import Drawing
from paribus.engine.data import TOKEN_CLASSES
from paribus.engine.evaluation.measures import (
    ALL,
    BINS,
    Row,
    equal_width,
    gap_sum,
    measure,
    tally,
)
from paribus.engine.evaluation.predictions import TEMPERATURES, Predictions
from paribus.metric import ItemSums

LOSS = "loss (nats/token)"
CONTEXT_STEP = 8  # tokens
LARGEST_LOSS = 700  # nats: exp of more may overflow
drawing = partial(Drawing, section="evaluation")
by_temperature = partial(
    drawing,
    "T={}",
    "curve",
    across="softmax temperature",
    log=True,
    note="An overconfident model is best at a temperature above 1.",
)


# The families of parts.


def positions(seq_len: int) -> tuple[str, ...]:
    """Return the names of window positions, where "position 5" is predicted from 5 tokens."""
    return tuple(f"position {p}" for p in range(1, seq_len + 1))


def contexts(seq_len: int) -> tuple[str, ...]:
    """Return the names of context-length bins, whose upper edges are 8, 16, ... and seq_len."""
    ends = [*range(CONTEXT_STEP, seq_len, CONTEXT_STEP), seq_len]
    return tuple(f"context {end}" for end in ends)


CONFIDENCE_BINS = tuple(f"bin {b}" for b in range(1, BINS + 1))
AT = tuple(f"T={temperature:.3g}" for temperature in TEMPERATURES)  # softmax temperatures
BREAKDOWN = (ALL, TOKEN_CLASSES, positions)


def breakdown(predictions: Predictions, totals: np.ndarray) -> np.ndarray:
    """Sum `totals` [N] and count tokens in each part of BREAKDOWN, and return [parts, 2]."""
    families = (
        (1, np.zeros(len(predictions), np.int64)),
        (len(TOKEN_CLASSES), predictions.token_class),
        (predictions.seq_len, predictions.position),
    )
    return np.concatenate([grouped(n, index, totals) for n, index in families])


def grouped(n: int, index: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Sum `totals` [N] and count tokens in each of `n` groups, and return [n, 2].

    `index` [N] is the group index of each token.
    """
    counts = np.bincount(index, minlength=n)
    return np.stack([np.bincount(index, totals, minlength=n), counts], axis=1)


# The measures.


@measure(
    "validation_accuracy",
    better="higher",
    label="next-token accuracy",
    items=ItemSums("correct", "predicted", step=1),
    uniform="1/V",
    unit="share",
    parts=BREAKDOWN,
)
def validation_accuracy(predictions: Predictions) -> np.ndarray:
    """Count correct predictions and tokens in each part, for next-token (top-1) accuracy."""
    return breakdown(predictions, predictions.correct)


# Tokenizers are compared by bits, because all of them encode the same text. End-of-document tokens
# add bits, as the text cannot be decoded without them, but no characters.
by_text = partial(measure, better="lower", of_tokens=False)


@by_text(
    "bits_per_character",
    unit="bits/character",
    items=ItemSums("loss_sum_nats", "characters", 1 / math.log(2)),
)
def bits_per_character(predictions: Predictions) -> tuple[float, int]:
    """Return the total loss in bits, and the number of characters in the predicted tokens.

    See Shannon 1951, and Graves 2013 for the normalization by characters.
    """
    return _bits(predictions), predictions.characters.sum()


@by_text(
    "bits_per_byte",
    unit="bits/byte",
    items=ItemSums("loss_sum_nats", "bytes", 1 / math.log(2)),
)
def bits_per_byte(predictions: Predictions) -> tuple[float, int]:
    """Return the total loss in bits, and the number of UTF-8 bytes in the predicted tokens.

    See Gao et al. 2020, The Pile (arXiv 2101.00027), section 3.1.
    """
    return _bits(predictions), predictions.n_bytes.sum()


def _bits(predictions: Predictions) -> float:
    return predictions.loss_nats.sum(dtype=np.float64) / math.log(2)


@measure(
    "brier_score",
    better="lower",
    label="Brier score",
    unit="",
    items=ItemSums("brier_sum", "predicted"),
)
def brier_score(predictions: Predictions) -> tuple[float, int]:
    """Return the total Brier score, and the number of tokens.

    A token's score is sum_k (p_k - y_k)^2, from 0 (best) to 2 (Brier 1950).
    """
    return predictions.brier.sum(dtype="float64"), len(predictions)


@measure(
    "calibration_error",
    better="lower",
    unit="share",
    finish=lambda bins, seq_len: [Row.ratio("all", gap_sum(bins), int(bins[0].sum()))],
)
def calibration_error(predictions: Predictions) -> np.ndarray:
    """Return the per-bin sums ([3, BINS], see `tally`) for the expected calibration error.

    The error is the mean of |accuracy - confidence| of the most probable token over 15 equal-width
    bins, weighted by the number of tokens (Guo et al. 2017, arXiv 1706.04599, equation 3).
    """
    confidence = predictions.confidence
    return tally(equal_width(confidence), confidence, predictions.correct)


@measure(
    "context_loss",
    better="lower",
    label="loss by context",
    unit="nats/token",
    parts=(contexts,),
    drawings=(
        drawing(
            *("context {}", "curve", "Loss by length of context", LOSS),
            across="context (tokens)",
            in_text=True,
        ),
    ),
)
def context_loss(predictions: Predictions) -> np.ndarray:
    """Sum the loss per context-length bin, where "context c" covers c - 7 to c tokens.

    A causal model's prediction depends only on the preceding tokens in its window, so a context
    truncated to c tokens gives the same logits as the first c positions of the window, and no
    additional pass is needed. Windows start at the same tokens in every arm, so arms are compared
    on the same predictions. The last bin is narrower if 8 does not divide seq_len. Kaplan et al.
    2020 (arXiv 2001.08361) report the loss by token index.
    """
    n = len(contexts(predictions.seq_len))
    return grouped(n, predictions.position // CONTEXT_STEP, predictions.loss_nats)


@measure(
    "validation_loss",
    better="lower",
    items=ItemSums("loss_sum_nats", "predicted"),
    uniform="log V",
    unit="nats/token",
    parts=BREAKDOWN,
    drawings=(
        drawing(
            *("position {}", "curve", "Loss by position in the window", LOSS),
            across="position in the window (tokens)",
        ),
        drawing("{}", "parts", "Loss by class of the predicted token", LOSS, parts=TOKEN_CLASSES),
    ),
)
def validation_loss(predictions: Predictions) -> np.ndarray:
    """Sum the cross-entropy, -log p(token | context), in each part, in nats (Shannon 1948)."""
    return breakdown(predictions, predictions.loss_nats)


def _perplexity(sums: np.ndarray, seq_len: int) -> list[Row]:
    loss = sums[0] / sums[1]
    return [Row("all", math.inf if loss > LARGEST_LOSS else math.exp(loss))]


@measure(
    "validation_perplexity",
    better="lower",
    digits=2,
    uniform="V",
    unit="",
    finish=_perplexity,
)
def validation_perplexity(predictions: Predictions) -> tuple[float, int]:
    """Return the total loss in nats, and the number of tokens, for perplexity = exp(mean loss).

    Perplexity is infinite on overflow. See Jelinek, Mercer, Bahl & Baker 1977.
    """
    return predictions.loss_nats.sum(dtype=np.float64), len(predictions)


def _by_bin(predictions: Predictions, totals: np.ndarray) -> np.ndarray:
    return grouped(BINS, equal_width(predictions.confidence), totals)


@measure("reliability_confidence", unit="share", parts=(CONFIDENCE_BINS,))
def reliability_confidence(predictions: Predictions) -> np.ndarray:
    """Sum confidences and count tokens in each confidence bin, for a reliability diagram.

    See Guo et al. 2017 (arXiv 1706.04599), section 2.
    """
    return _by_bin(predictions, predictions.confidence)


@measure(
    "reliability_accuracy",
    unit="share",
    parts=(CONFIDENCE_BINS,),
    drawings=(
        drawing(
            *("bin {}", "against", "Reliability", "accuracy (share)"),
            across="confidence (share)",
            against="reliability_confidence/bin {}",
            note="Accuracy of the most probable token against its probability, in bins of equal "
            "width. Points below the diagonal indicate overconfidence.",
            in_text=True,
        ),
    ),
)
def reliability_accuracy(predictions: Predictions) -> np.ndarray:
    """Count correct predictions and tokens in each confidence bin, for a reliability diagram.

    See Guo et al. 2017 (arXiv 1706.04599), section 2.
    """
    return _by_bin(predictions, predictions.correct)


@measure(
    "temperature_loss",
    better="lower",
    label="loss by temperature",
    unit="nats/token",
    parts=(AT,),
    drawings=(by_temperature("Loss by temperature", LOSS),),
)
def temperature_loss(predictions: Predictions) -> np.ndarray:
    """Sum the loss at each softmax temperature, for temperature scaling.

    See Guo et al. 2017 (arXiv 1706.04599), section 4.2.
    """
    losses = predictions.losses_at
    return np.stack([(at.sum(dtype=np.float64), len(at)) for at in losses])


def _calibration_errors(tallies: np.ndarray, seq_len: int) -> list[Row]:
    of_each = zip(AT, tallies, strict=True)
    return [Row.ratio(name, gap_sum(at), int(at[0].sum())) for name, at in of_each]


@measure(
    "temperature_calibration_error",
    better="lower",
    label="calibration error by temperature",
    unit="share",
    parts=(AT,),
    drawings=(
        by_temperature("Calibration error by temperature", "expected calibration error (share)"),
    ),
    finish=_calibration_errors,
)
def temperature_calibration_error(predictions: Predictions) -> np.ndarray:
    """Return the per-bin sums (see `tally`) for the calibration error at each temperature.

    See Guo et al. 2017 (arXiv 1706.04599), section 4.2.
    """
    hits = predictions.correct[predictions.swept]
    return np.stack([tally(equal_width(c), c, hits) for c in predictions.confidences_at])
