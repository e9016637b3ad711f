"""Held-out measures of a model on tokens of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paribus.engine.data import Dataset, Tokens
from paribus.engine.evaluation.custom_measures import OwnMeasure
from paribus.engine.evaluation.heldout import Evaluation, evaluate_heldout
from paribus.engine.evaluation.predictions import Precision


def evaluate_on(
    model: torch.nn.Module,
    dataset: Dataset,
    tokens: Tokens,
    seq_len: int,
    own: Sequence[OwnMeasure] = (),
    precision: Precision = "float32",
) -> Evaluation:
    """Every held-out measure of `model` on `tokens` [n], the user's `own` too."""
    return evaluate_heldout(
        model,
        tokens,
        seq_len,
        token_classes=dataset.token_classes,
        characters=dataset.tokenizer.characters_per_token,
        end_of_document=dataset.tokenizer.end_of_document,
        own=own,
        precision=precision,
    )
