"""Built-in probes, in the order of their output columns.

Axes: R replicas, B batch, T time, D d_model, H query heads, G key-value heads or parameter groups,
K channels per head, V vocabulary, S statistics, C token classes, Q quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.model import visible
from paribus.engine.probes import EVERY_BLOCK, LOGITS, StepView, probe
from paribus.engine.probes.reduce import (
    CLASSES,
    GROUPS,
    QUANTILES,
    SPREAD,
    absent,
    blocks,
    by_class,
    depths,
    group_norms,
    groups,
    quantiles,
    spread,
)
from paribus.engine.rows import Rows

QUERY_KEY = f"{EVERY_BLOCK}.attention.query_key"


@probe(
    "attention_logits",
    unit="nats",
    # Wortsman et al. 2023
    parts=blocks,
    every=25,
    modules=(QUERY_KEY,),
    label="largest attention logit",
)
def attention_logits(step: StepView) -> Tensor:
    """Return the largest attention logit q.k / sqrt(K) of each block, [R, blocks].

    Growing attention logits precede some divergences. The maximum is over batch, heads and visible
    pairs of positions, after QK norm and rotary embeddings, and before soft capping.
    """
    model = step.setting.model
    paths = [QUERY_KEY.replace(EVERY_BLOCK, f"blocks.{i}") for i in range(model.n_layer)]
    sizes = model.n_head, model.attention.window
    return torch.stack([_largest(step.outputs[path], *sizes) for path in paths], dim=1)


def _largest(query_key: Tensor, n_head: int, window: int | None) -> Tensor:
    """Return each replica's largest attention logit, [R], from `query_key` [R, B, H + G, T, K].

    Sequences are processed one at a time to save memory.
    """
    q, k = query_key.transpose(0, 1).split((n_head, query_key.shape[2] - n_head), dim=2)
    T, K = query_key.shape[-2:]
    hidden_TT = ~visible(0, T, T, window, query_key.device)
    largest = query_key.new_full((len(query_key),), -math.inf, dtype=torch.float32)
    for q_RHTK, k_RGTK in zip(q, k, strict=True):
        k_RHTK = k_RGTK.repeat_interleave(n_head // k_RGTK.shape[1], dim=1)
        scores = (q_RHTK @ k_RHTK.transpose(-1, -2)).masked_fill_(hidden_TT, -math.inf)
        largest = torch.maximum(largest, scores.amax(dim=(1, 2, 3)).float())
    return largest / math.sqrt(K)


# Mean cosine similarity of all pairs of vectors: oversmoothing between positions of a window,
# anisotropy between rows of an embedding (Ethayarajh 2019). A common mean vector can dominate it,
# so it is measured plain, without the mean vector, and without each vector's channel mean, which
# LayerNorm removes and RMSNorm does not.
SIMILARITIES = ("plain", "mean vector removed", "channel mean removed")
POSITIONS_ALIKE, COSINE = "Similarity of positions", "mean cosine similarity"
TABLES = {"tokens": "embedding.tokens.weight", "positions": "embedding.positions.weight"}


@probe(
    "position_similarity",
    unit="cosine",
    # Ethayarajh 2019
    parts=depths,
    statistics=SIMILARITIES,
    every=10,
    modules=("embedding", EVERY_BLOCK),
    drawings=(
        Drawing("block 1/plain", "trend", f"{POSITIONS_ALIKE} at block 1 (oversmoothing)", COSINE),
        Drawing(
            *("{}/plain", "profile", f"{POSITIONS_ALIKE} across depth (oversmoothing)", COSINE),
            across="before block",
        ),
    ),
)
def position_similarity(step: StepView) -> Tensor:
    """Return the mean cosine similarity between positions at each depth, [R, depths, S].

    Values are averaged over the batch. S are the variants in SIMILARITIES.
    """
    each = [_similarities(x.float()).mean(dim=1) for x in step.block_inputs]
    return torch.stack(each, dim=1)


@probe(
    "embedding_similarity",
    unit="cosine",
    # Ethayarajh 2019
    parts=tuple(TABLES),
    statistics=SIMILARITIES,
    every=10,
    drawings=(Drawing("tokens/plain", "trend", "Similarity of token embeddings", COSINE),),
)
def embedding_similarity(step: StepView) -> Tensor:
    """Return the mean pairwise cosine similarity within each embedding table, [R, 2, S]."""
    each = [_table(step.weights, name) for name in TABLES.values()]
    return torch.stack(each, dim=1)


def _table(weights: Rows, name: str) -> Tensor:
    """Return the similarity of an embedding's vectors, [R, S], or NaN for a missing embedding."""
    if name in weights:
        return _similarities(weights[name])
    return absent(weights, len(SIMILARITIES))


def _similarities(x: Tensor) -> Tensor:
    """Return the mean pairwise similarities of x [..., n, D] as [..., S], or NaN if n is 1."""
    variants = (x, x - x.mean(dim=-2, keepdim=True), x - x.mean(dim=-1, keepdim=True))
    return torch.stack([_mean_cosine(variant) for variant in variants], dim=-1)


def _mean_cosine(x: Tensor) -> Tensor:
    """Return the mean cosine similarity of all pairs of nonzero vectors in x [..., n, D], as [...].

    With u_i = x_i / |x_i|, this is (|sum u_i|^2 - n) / (n (n - 1)) for n nonzero vectors.
    """
    unit = F.normalize(x, dim=-1)
    # The number of nonzero vectors.
    squares = unit.square().sum(dim=(-1, -2))
    total = unit.sum(dim=-2)
    return (total.square().sum(dim=-1) - squares) / (squares * (squares - 1))


PARAMETERS = {"gain": "embedding.norm.weight", "bias": "embedding.norm.bias"}


@probe(
    "embedding_gain",
    unit="1",
    # Ba et al. 2016; Zhang & Sennrich 2019
    parts=tuple(PARAMETERS),
    statistics=SPREAD,
)
def embedding_gain(step: StepView) -> Tensor:
    """Return the mean and quantiles over channels of the embedding norm's gain and bias, [R, 2, S].

    Values are NaN for an arm without the parameter.
    """
    weights = step.weights
    each = [
        spread(weights[name].flatten(1)) if name in weights else absent(weights, len(SPREAD))
        for name in PARAMETERS.values()
    ]
    return torch.stack(each, dim=1)


@probe(
    "embedding_norm",
    unit="L2",
    label="norm entering block 1",
    digits=2,
    parts=CLASSES,
    statistics=SPREAD,
    modules=("embedding",),
    drawings=(
        Drawing("all/mean", "trend", "Norm entering block 1", "mean norm (L2)", in_text=True),
        Drawing(
            "{}/mean",
            "spread",
            "Norm entering block 1 by token class",
            "norm entering block 1 (L2)",
            in_text=True,
        ),
    ),
)
def embedding_norm(step: StepView) -> Tensor:
    """Return the mean and quantiles of the norm |x_BT| after the embedding, [R, 1 + C, S].

    The first row covers all tokens, and the other rows the tokens of each class.
    """
    norms_RN = step.outputs["embedding"].float().norm(dim=-1).flatten(1)
    return spread(by_class(norms_RN, step.token_classes[step.tokens.flatten(1)]))


@probe(
    "gradient_norm",
    unit="L2",
    parts=GROUPS,
    drawings=(
        Drawing("{}/value", "panels", "Gradient norm by parameter group", "L2", "stability"),
    ),
)
def gradient_norm(step: StepView) -> Tensor:
    """Return the gradient norm of each parameter group before clipping, [R, G]."""
    return group_norms(step.gradients)


@probe(
    "logits",
    unit="nats",
    # Wortsman et al. 2023
    statistics=("mean magnitude", "max magnitude", "log-partition"),
    modules=(LOGITS,),
    drawings=(
        Drawing("all/mean magnitude", "trend", "Logit magnitude", "mean |logit| (nats)"),
        Drawing("all/max magnitude", "trend", "Largest logit", "max |logit| (nats)"),
    ),
)
def logits(step: StepView) -> Tensor:
    """Return mean |z|, maximum |z| and mean log sum_v exp(z_v) of the logits z_BTV, [R, S]."""
    z_RNV = step.outputs[LOGITS].flatten(1, 2)
    magnitude = z_RNV.abs()
    mean = magnitude.mean(dim=(1, 2), dtype=torch.float32)
    log_partition = z_RNV.float().logsumexp(dim=-1).mean(dim=1)
    return torch.stack([mean, magnitude.amax(dim=(1, 2)).float(), log_partition], dim=1)


SAMPLE = 16_384  # evenly spaced parameters of a group for quantiles; means are over all
SQUARE = "exp_avg_sq"


@probe(
    "optimizer_slots",
    unit="that of the slot",
    # Kingma & Ba 2015; that of the optimizer
    parts=GROUPS,
    statistics=SPREAD,
    every=25,
    by_slot=True,
    drawings=(
        Drawing("exp_avg_sq {}/mean", "panels", "AdamW's second moment", "mean v (gradient²)"),
        Drawing(
            "momentum_buffer {}/mean", "panels", "Momentum of the optimizer", "mean |b| (gradient)"
        ),
    ),
)
def optimizer_slots(step: StepView) -> Tensor:
    """Return the mean and quantiles of optimizer state magnitudes, [R, slots x G, S].

    Each slot, such as AdamW's second moment, has a row for each parameter group. Magnitudes are
    bias-corrected.
    """
    each = [_statistics(rows, step.corrections[slot]) for slot, rows in step.slots.items()]
    return torch.cat([absent(step.weights, 0, len(SPREAD)), *each], dim=1)


@probe(
    "below_eps",
    unit="share",
    # Kingma & Ba 2015, Adam
    label="share of steps that eps decides",
    parts=GROUPS,
    every=25,
)
def below_eps(step: StepView) -> Tensor:
    """Return the fraction of parameters whose second moment is below eps^2, [R, G].

    Values are NaN if the optimizer has no second moments.
    """
    if SQUARE not in step.slots:
        return absent(step.weights, len(GROUPS))
    limit = step.setting.training.optimizer.eps**2
    return _mean(
        step.slots[SQUARE],
        step.corrections[SQUARE],
        lambda square, correction: (square < limit * correction).float(),
    )


def _statistics(rows: Rows, corrections: Mapping[str, float]) -> Tensor:
    """Return each group's mean magnitude, and quantiles of sampled magnitudes, [R, G, 1 + Q]."""
    sampled = []
    for pieces in groups(rows, corrections):
        if not pieces:
            sampled.append(absent(rows, len(QUANTILES)))
            continue
        # An odd stride samples every column of a matrix whose width is a power of two.
        stride = sum(piece.shape[1] for piece, _ in pieces) // SAMPLE | 1
        even = torch.cat([piece[:, ::stride].abs() / c for piece, c in pieces], dim=1)
        sampled.append(quantiles(even))
    mean_RG1 = _mean(rows, corrections, lambda x, c: x.abs() / c)[..., None]
    return torch.cat([mean_RG1, torch.stack(sampled, dim=1)], dim=2)


def _mean(
    rows: Rows, corrections: Mapping[str, float], function: Callable[[Tensor, float], Tensor]
) -> Tensor:
    """Return the mean of `function(values, divisor)` over each parameter group, [R, G]."""
    columns = []
    for pieces in groups(rows, corrections):
        if not pieces:
            columns.append(absent(rows))
            continue
        each = [function(piece, correction).sum(dim=1) for piece, correction in pieces]
        size = sum(piece.shape[1] for piece, _ in pieces)
        columns.append(torch.stack(each).sum(dim=0) / size)
    return torch.stack(columns, dim=1)


@probe(
    "residual_norm",
    unit="L2",
    parts=depths,
    statistics=SPREAD,
    modules=("embedding", EVERY_BLOCK),
    drawings=(
        Drawing(
            "{}/mean",
            "profile",
            "Residual norm across depth",
            "mean norm of the residual stream (L2)",
            across="before block",
            in_text=True,
        ),
    ),
)
def residual_norm(step: StepView) -> Tensor:
    """Return the mean and quantiles over tokens of the norm |x_BT|, [R, depths, S].

    Depths are the inputs of all blocks and the output of the last block.
    """
    norms = [x.float().norm(dim=-1).flatten(1) for x in step.block_inputs]
    return spread(torch.stack(norms, dim=1))


@probe(
    "update_ratio",
    unit="1",
    # You et al. 2017, LARS
    parts=GROUPS,
    updates=True,
    drawings=(
        Drawing("{}/value", "panels", "Size of a step relative to the weights", "|Δw| / |w|"),
    ),
)
def update_ratio(step: StepView) -> Tensor:
    """Return the relative size of a step, |new weights - weights| / |weights|, [R, G].

    The step includes weight decay. Values are NaN if all weights of a group are zero.
    """
    ratio = group_norms(step.updates) / group_norms(step.weights)
    return ratio.masked_fill(ratio.isinf(), float("nan"))
