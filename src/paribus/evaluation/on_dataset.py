"""A model's predictions and held-out measures, on tokens of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from paribus.data import Dataset, Tokens
from paribus.evaluation.heldout import Evaluation, evaluate_heldout
from paribus.evaluation.measures import Measure
from paribus.evaluation.predictions import Predictions, predict


def predict_on(
    model: torch.nn.Module, dataset: Dataset, tokens: Tokens, seq_len: int
) -> Predictions:
    """What `model` predicts of `tokens` [n], with what the dataset knows of them."""
    return predict(model, tokens, seq_len, **_known(dataset))


def evaluate_on(
    model: torch.nn.Module,
    dataset: Dataset,
    tokens: Tokens,
    seq_len: int,
    own: Sequence[Measure] = (),
) -> Evaluation:
    """Every held-out measure of `model` on `tokens` [n], the user's `own` too."""
    return evaluate_heldout(model, tokens, seq_len, own=own, **_known(dataset))


def _known(dataset: Dataset) -> dict[str, np.ndarray]:
    return {
        "token_classes": dataset.token_classes,
        "characters": dataset.tokenizer.characters_per_token,
    }
