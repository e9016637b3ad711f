"""Batched log-likelihoods of continuations, with a cache for long shared prefixes.

Shared prefixes are the few-shot examples of a task. The rest of each request is batched by length
and padded on the right, which a causal model cannot see. Log-probabilities are computed in float32
and summed in float64 on the host. Batches depend only on the requests, so equal requests give
bit-identical results. Different batches change a sum only by rounding (about 1e-5 nats).

Axes: B batch, T time, N scored positions, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from paribus.engine.evaluation.predictions import evaluating
from paribus.engine.model import GPT, KeyValueCache

# Of a batch, after padding and with what was read before: on an accelerator more, so that it is
# kept busy by one model.
BATCH_TOKENS, ACCELERATOR_BATCH_TOKENS = 2**11, 2**15
# Beginnings that are shorter, or shared by fewer requests, are not worth a pass of their own.
LEAST_ROOT, LEAST_MEMBERS = 32, 16
# Log-probabilities held at once.
HEAD_ELEMENTS = 2**24


class Pair(NamedTuple):
    """Nonempty token ids of a context and of the continuation to score."""

    context: np.ndarray
    continuation: np.ndarray


class Scored(NamedTuple):
    """Log-likelihood of a continuation in nats, and whether greedy decoding would generate it."""

    loglikelihood: float
    greedy: bool


def score(model: Any, pairs: Sequence[Pair]) -> list[Scored]:
    """Score the continuation of each pair given its context.

    Context and continuation together may be at most one token longer than the model's window.
    Returns scores in the order of `pairs`, and restores the model's training mode.
    """
    device = next(model.parameters()).device
    limit = BATCH_TOKENS if device.type == "cpu" else ACCELERATOR_BATCH_TOKENS
    results: dict[int, Scored] = {}
    with evaluating(model):
        for root, numbers in _families([pair.context for pair in pairs], can_share(model)):
            state = None
            if len(root):
                state = KeyValueCache(len(model.blocks))
                model.hidden(torch.from_numpy(root)[None].to(device), state)
            for batch in _batches(pairs, numbers, limit):
                scores = _score_batch(model, [pairs[n] for n in batch], len(root), state)
                results |= zip(batch, scores, strict=True)
    return [results[number] for number in range(len(pairs))]


def can_share(model: nn.Module) -> bool:
    """Return whether `model` supports a key-value cache, so that prefixes can be shared."""
    return isinstance(model, GPT) and model.can_cache


def _families(
    contexts: Sequence[np.ndarray], shares: bool
) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Group contexts by a shared prefix.

    The last token of a context predicts the first of the continuation, so it is never shared.

    Args:
        contexts: token ids of each context.
        shares: whether prefixes may be shared; if False, there is a single group.

    Yields (prefix, indices of the contexts that start with the prefix). The last group has an empty
    prefix and contains all other contexts.
    """
    # Sorted neighbours have the longest common beginnings. The order of big-endian bytes is that of
    # the tokens, in less memory than lists of them.
    order = sorted(range(len(contexts)), key=lambda n: contexts[n].astype(">u4").tobytes())
    alone: list[int] = []
    start = 0
    while start < len(order):
        root, end = contexts[order[start]][:-1], start + 1
        while shares and end < len(order):
            neighbour = contexts[order[end]][:-1]
            size = min(len(root), len(neighbour))
            common = int((root[:size] == neighbour[:size]).cumprod().sum())
            if common < LEAST_ROOT:
                break
            root, end = root[:common], end + 1
        if end - start >= LEAST_MEMBERS:
            yield root, order[start:end]
        else:
            alone += order[start:end]
        start = end
    if alone:
        yield np.zeros(0, np.int64), alone


def _batches(pairs: Sequence[Pair], numbers: list[int], limit: int) -> Iterator[list[int]]:
    """Yield batches of pairs of similar length, as lists of indices from `numbers`.

    A padded batch has at most `limit` tokens unless it contains a single pair.
    """
    batch: list[int] = []
    lengths = {n: len(pairs[n].context) + len(pairs[n].continuation) for n in numbers}
    for number, length in sorted(lengths.items(), key=lambda item: item[1]):
        if batch and (len(batch) + 1) * length > limit:
            yield batch
            batch = []
        batch.append(number)
    yield batch


def _score_batch(
    model: Any, pairs: Sequence[Pair], root: int, state: KeyValueCache | None
) -> list[Scored]:
    """Score a batch of pairs whose contexts share their first `root` tokens.

    `state` is the key-value cache of the shared tokens, or None if `root` is 0.
    """
    device = next(model.parameters()).device
    rows = [np.concatenate([pair.context, pair.continuation[:-1]])[root:] for pair in pairs]
    tokens_BT = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True).to(device)
    is_scored_BT = torch.zeros(tokens_BT.shape, dtype=torch.bool)
    for b, pair in enumerate(pairs):
        is_scored_BT[b, len(pair.context) - 1 - root : len(rows[b])] = True
    is_scored_BT = is_scored_BT.to(device)
    targets_N = torch.from_numpy(np.concatenate([pair.continuation for pair in pairs])).to(device)
    if can_share(model):
        if state is not None:
            state = state.rows(torch.zeros(len(pairs), dtype=torch.int64, device=device))
        hidden_ND = model.hidden(tokens_BT, state)[is_scored_BT]
        size = max(HEAD_ELEMENTS // len(model.embedding.tokens.weight), 1)
        split = zip(hidden_ND.split(size), targets_N.split(size), strict=True)
        parts = [_pick(model.logits(hidden), targets) for hidden, targets in split]
    else:
        parts = [_pick(model(tokens_BT)[is_scored_BT], targets_N)]
    ends = np.cumsum([len(pair.continuation) for pair in pairs])
    by_pair = [np.split(np.concatenate(part), ends[:-1]) for part in zip(*parts, strict=True)]
    return [Scored(float(p.sum()), bool(hit.all())) for p, hit in zip(*by_pair, strict=True)]


def _pick(logits_NV: Tensor, targets_N: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probability of each target (float64), and whether the target is the argmax."""
    log_probs_NV = logits_NV.float().log_softmax(dim=-1)
    chosen = log_probs_NV.gather(-1, targets_N[:, None])[:, 0]
    greedy = log_probs_NV.argmax(dim=-1) == targets_N
    # On the host: not every device has float64.
    return chosen.cpu().double().numpy(), greedy.cpu().numpy()
