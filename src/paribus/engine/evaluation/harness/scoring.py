"""Log-likelihoods of continuations; contexts that requests share are computed once.

Requests with one context (the choices of an item) share it; contexts with one beginning (solved
examples before every item of a task) share that. What is left is batched by length and padded on
the right, where a causal model cannot see it. Log-probabilities are taken in float32 and summed in
float64 on the host. Batches depend on the requests alone, so equal requests give equal bits; other
companions in a batch move a sum by rounding only (some 1e-5 nats).

Axes: B rows, T time, N scored positions, D d_model, V vocabulary.
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
# Beginnings shorter than this are not worth a pass of their own.
LEAST_ROOT = 32
# Log-probabilities held at once.
HEAD_ELEMENTS = 2**24


class Pair(NamedTuple):
    """Token ids of a context (at least one) and of the continuation to be scored (at least one)."""

    context: np.ndarray
    continuation: np.ndarray


class Scored(NamedTuple):
    """Summed log-probability in nats, and whether every token was the most probable one."""

    loglikelihood: float
    greedy: bool


class _Group(NamedTuple):
    """Pairs that share a context, by number."""

    context: np.ndarray
    members: list[int]
    longest: int


def score(model: Any, pairs: Sequence[Pair]) -> list[Scored]:
    """Return the score of every pair's continuation given its context, in the order of `pairs`.

    A pair's context and continuation together are at most one token longer than the model's window.
    The model is left in the mode it was in.
    """
    device = next(model.parameters()).device
    limit = BATCH_TOKENS if device.type == "cpu" else ACCELERATOR_BATCH_TOKENS
    results: dict[int, Scored] = {}
    with evaluating(model):
        for root, family in _families(_groups(pairs), can_share(model)):
            state = None
            if len(root):
                state = KeyValueCache(len(model.blocks))
                model.hidden(torch.from_numpy(root)[None].to(device), state)
            for groups in _batches(family, len(root), limit):
                results |= _score_batch(model, pairs, groups, len(root), state)
    return [results[number] for number in range(len(pairs))]


def can_share(model: nn.Module) -> bool:
    """Return whether the shared beginnings of requests can be computed once."""
    return isinstance(model, GPT) and model.can_cache


def _groups(pairs: Sequence[Pair]) -> list[_Group]:
    by_context: dict[bytes, list[int]] = {}
    for number, pair in enumerate(pairs):
        # Big-endian, so that the order of the bytes is the order of the tokens.
        by_context.setdefault(pair.context.astype(">u4").tobytes(), []).append(number)
    return [
        _Group(pairs[numbers[0]].context, numbers, max(len(pairs[n].continuation) for n in numbers))
        for _, numbers in sorted(by_context.items())
    ]


def _families(groups: list[_Group], shares: bool) -> Iterator[tuple[np.ndarray, list[_Group]]]:
    """Yield (shared beginning, groups whose contexts have it); it is empty for all other groups."""
    alone: list[_Group] = []
    start = 0
    while start < len(groups):
        # Sorted neighbours have the longest common beginnings.
        root, end = groups[start].context[:-1], start + 1
        while shares and end < len(groups):
            neighbour = groups[end].context[:-1]
            size = min(len(root), len(neighbour))
            common = int((root[:size] == neighbour[:size]).cumprod().sum())
            if common < LEAST_ROOT:
                break
            root, end = root[:common], end + 1
        if end - start > 1:
            yield root, groups[start:end]
        else:
            alone.append(groups[start])
        start = end
    if alone:
        yield np.zeros(0, np.int64), alone


def _batches(family: list[_Group], root: int, limit: int) -> Iterator[list[_Group]]:
    """Yield batches of groups of similar length, with at most `limit` tokens or a single group."""
    batch: list[_Group] = []
    rows = longest = 0
    for group in sorted(family, key=lambda group: (len(group.context), group.longest)):
        size, n = len(group.context) - root + group.longest, len(group.members)
        length = max(longest, size)
        if batch and (rows + n) * (root + length) > limit:
            yield batch
            batch, rows, length = [], 0, size
        batch.append(group)
        rows, longest = rows + n, length
    if batch:
        yield batch


def _score_batch(
    model: Any, pairs: Sequence[Pair], groups: list[_Group], done: int, state: KeyValueCache | None
) -> dict[int, Scored]:
    """Return the scores of the pairs of `groups`, by number.

    All their contexts begin with the same `done` tokens, which `state` holds.
    """
    device = next(model.parameters()).device
    row_of = [0] * len(groups)
    # The last token of a context predicts the first of the continuation, and so stays with it.
    shared = min(len(group.context) for group in groups) - 1
    if can_share(model) and shared > done and any(len(group.members) > 1 for group in groups):
        contexts = np.stack([group.context[done:shared] for group in groups])
        if state is None:
            state = KeyValueCache(len(model.blocks))
        else:
            state = state.rows(torch.tensor(row_of, device=device))
        model.hidden(torch.from_numpy(contexts).to(device), state)
        done, row_of = shared, list(range(len(groups)))
    numbers = [number for group in groups for number in group.members]
    rows = [np.concatenate([pairs[n].context, pairs[n].continuation[:-1]])[done:] for n in numbers]
    tokens_BT = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True).to(device)
    if state is not None:
        row_of = np.repeat(row_of, [len(group.members) for group in groups])
        state = state.rows(torch.from_numpy(row_of).to(device))

    sizes = np.array([len(pairs[n].continuation) for n in numbers])
    starts = np.cumsum(sizes) - sizes
    first = np.array([len(pairs[n].context) - 1 - done for n in numbers])
    row_N = torch.from_numpy(np.repeat(np.arange(len(rows)), sizes)).to(device)
    time_N = np.arange(sizes.sum()) - np.repeat(starts - first, sizes)
    targets_N = torch.from_numpy(np.concatenate([pairs[n].continuation for n in numbers]))
    places, targets_N = (row_N, torch.from_numpy(time_N).to(device)), targets_N.to(device)
    if can_share(model):
        hidden_ND = model.hidden(tokens_BT, state)[places]
        size = max(HEAD_ELEMENTS // len(model.embedding.tokens.weight), 1)
        split = zip(hidden_ND.split(size), targets_N.split(size), strict=True)
        parts = [_pick(model.logits(hidden), targets) for hidden, targets in split]
    else:
        parts = [_pick(model(tokens_BT)[places], targets_N)]
    chosen, greedy = (np.concatenate(part) for part in zip(*parts, strict=True))
    sums, all_greedy = np.add.reduceat(chosen, starts), np.logical_and.reduceat(greedy, starts)
    return dict(zip(numbers, map(Scored, sums.tolist(), all_greedy.tolist()), strict=True))


def _pick(logits_NV: Tensor, targets_N: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets' log-probabilities, float64, and whether each is the most probable
    token."""
    log_probs_NV = logits_NV.float().log_softmax(dim=-1)
    chosen = log_probs_NV.gather(-1, targets_N[:, None])[:, 0]
    greedy = log_probs_NV.argmax(dim=-1) == targets_N
    # On the host: not every device has float64.
    return chosen.cpu().double().numpy(), greedy.cpu().numpy()
