"""Mean cosine similarity of all pairs of vectors: do they point the same way?

Between positions of a window it measures oversmoothing, between rows of an embedding anisotropy
(Ethayarajh 2019). The mean vector that all have in common can make up most of it, so it is given
as it is, with that mean vector removed, and with each vector's own channel mean removed, which is
what LayerNorm does and RMSNorm does not.

The mean over pairs needs no pairs: with u_i = x_i / |x_i| it is (|sum u_i|^2 - n) / (n (n - 1)).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import EVERY_BLOCK, StepView, probe
from paribus.engine.probes.reduce import absent, depths
from paribus.engine.rows import Rows

STATISTICS = ("plain", "mean vector removed", "channel mean removed")
SOURCE = "Ethayarajh 2019"
TABLES = {"tokens": "embedding.tokens.weight", "positions": "embedding.positions.weight"}


@probe(
    "position_similarity",
    unit="cosine",
    source=SOURCE,
    parts=depths,
    statistics=STATISTICS,
    every=10,
    modules=("embedding", EVERY_BLOCK),
    drawings=(
        Drawing(
            "block 1/plain",
            "trend",
            "Similarity of positions at block 1 (oversmoothing)",
            "mean cosine similarity",
        ),
        Drawing(
            "{}/plain",
            "profile",
            "Similarity of positions across depth (oversmoothing)",
            "mean cosine similarity",
            across="before block",
        ),
    ),
)
def position_similarity(step: StepView) -> Tensor:
    """[R, depths, S] between the positions of a window, averaged over the batch."""
    each = [_similarities(x.float()).mean(dim=1) for x in step.block_inputs]
    return torch.stack(each, dim=1)


@probe(
    "embedding_similarity",
    unit="cosine",
    source=SOURCE,
    parts=tuple(TABLES),
    statistics=STATISTICS,
    every=10,
    drawings=(
        Drawing(
            "tokens/plain", "trend", "Similarity of token embeddings", "mean cosine similarity"
        ),
    ),
)
def embedding_similarity(step: StepView) -> Tensor:
    """[R, 2, S] between the rows of the token and of the position embedding."""
    return torch.stack([_table(step.weights, name) for name in TABLES.values()], dim=1)


def _table(weights: Rows, name: str) -> Tensor:
    """[R, S]; an own embedding stage may have no such table."""
    if name in weights:
        return _similarities(weights[name])
    return absent(weights, len(STATISTICS))


def _similarities(x: Tensor) -> Tensor:
    """[..., n, D] -> [..., S]; NaN for a single vector, which has no pair."""
    variants = (x, x - x.mean(dim=-2, keepdim=True), x - x.mean(dim=-1, keepdim=True))
    return torch.stack([_mean_cosine(variant) for variant in variants], dim=-1)


def _mean_cosine(x: Tensor) -> Tensor:
    """[..., n, D] -> [...] over all pairs of vectors that are not zero."""
    unit = F.normalize(x, dim=-1)
    squares = unit.square().sum(dim=(-1, -2))  # the number of vectors that are not zero
    return (unit.sum(dim=-2).square().sum(dim=-1) - squares) / (squares * (squares - 1))
