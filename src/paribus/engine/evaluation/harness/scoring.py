"""Log-likelihoods of continuations, fast: what requests share is computed once.

Requests with one context (the choices of an item) share it; contexts with one beginning (solved
examples before every item of a task) share that. What is left is batched by length and padded on
the right, where a causal model cannot see it. Log-probabilities are taken in float32 and summed in
float64 on the host. The plan depends on the requests alone, so equal requests give equal bits;
other companions in a batch move a sum by rounding only (some 1e-5 nats).

Axes: B rows, T time, N scored positions, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paribus.engine.model import GPT, KeyValueCache

# Of a batch, after padding: on an accelerator more, so that it is kept busy by one model.
BATCH_TOKENS, ACCELERATOR_BATCH_TOKENS = 2**11, 2**15
CACHE_ELEMENTS = 2**29  # of keys and values of all layers, on an accelerator: 2 GiB of float32
# Beginnings shorter than this are not worth a pass of their own.
LEAST_ROOT = 32
# Log-probabilities held at once.
HEAD_ELEMENTS = 2**24


@dataclass(frozen=True)
class Pair:
    """Token ids of a context (at least one) and of the continuation to be scored (at least one)."""

    context: np.ndarray
    continuation: np.ndarray


@dataclass(frozen=True)
class Scored:
    """Summed log-probability in nats, and whether every token was the most probable one."""

    loglikelihood: float
    greedy: bool


@dataclass(frozen=True)
class _Group:
    """Pairs with one context, by their number."""

    context: np.ndarray
    members: list[int]
    longest: int


@dataclass(frozen=True)
class _Batch:
    """Pairs that are read at once.

    Attributes:
        numbers: of the pairs, by row.
        contexts: [groups, T] what is read once for the rows of a group; None where nothing is.
        row_of: [B] the row that each one goes on from, of `contexts` or else of the beginning.
        tokens: [B, T] what is read after it.
        rows, times: [N] the places that are scored.
        targets: [N] the tokens that come there.
        starts: [B] where each row's places begin.
    """

    numbers: list[int]
    contexts: np.ndarray | None
    row_of: np.ndarray
    tokens: np.ndarray
    rows: np.ndarray
    times: np.ndarray
    targets: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Plan:
    """The way pairs are read: one for every model that can share alike, on devices of a kind.

    Attributes:
        n: how many pairs.
        families: a common beginning, and the batches that go on from it; for those that have none
            in common an empty one.
    """

    n: int
    families: tuple[tuple[np.ndarray, tuple[_Batch, ...]], ...]


def plan(model: nn.Module, pairs: Sequence[Pair]) -> Plan:
    """Return how `model`, or another with its structure and on its device, is to read `pairs`."""
    shares, limits = can_share(model), batch_limits(model, next(model.parameters()).device)
    return Plan(
        len(pairs),
        tuple(
            (root, tuple(_laid_out(pairs, groups, len(root), shares) for groups in batches))
            for root, family in _families(_groups(pairs), shares)
            for batches in [_batches(family, len(root), limits)]
        ),
    )


@torch.no_grad()
def score(model: nn.Module, pairs: Sequence[Pair] | Plan) -> list[Scored]:
    """Return the continuation of every pair given its context, in the order of `pairs`.

    A pair's context and continuation together are at most one token longer than the model's window.
    The model is left in the mode it was in. In place of the pairs, a plan of them.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    planned = pairs if isinstance(pairs, Plan) else plan(model, pairs)
    results: list[Scored | None] = [None] * planned.n
    for root, batches in planned.families:
        state = None
        if len(root):
            assert isinstance(model, GPT)
            state = KeyValueCache(len(model.blocks), len(root))
            model.hidden(torch.from_numpy(root)[None].to(device), state)
        for batch in batches:
            for number, scored in _score_batch(model, batch, state):
                results[number] = scored
    model.train(was_training)
    return results  # type: ignore[return-value]


def can_share(model: nn.Module) -> bool:
    """Return whether what requests have in common can be computed once."""
    return isinstance(model, GPT) and model.can_cache


class Limits(NamedTuple):
    """Of a batch, after padding.

    Attributes:
        tokens: how many are read at once.
        positions: of how many keys and values are held: rows times the length of a whole row, what
            was read before it included.
    """

    tokens: int
    positions: int


def batch_limits(model: nn.Module, device: torch.device) -> Limits:
    """Return how much is read at once, and held meanwhile."""
    if device.type == "cpu" or not isinstance(model, GPT):
        return Limits(BATCH_TOKENS, BATCH_TOKENS)
    # An upper bound where heads share keys and values.
    per_token = 2 * len(model.blocks) * model.embedding.tokens.weight.shape[1]
    return Limits(ACCELERATOR_BATCH_TOKENS, max(CACHE_ELEMENTS // per_token, BATCH_TOKENS))


def _groups(pairs: Sequence[Pair]) -> list[_Group]:
    by_context: dict[bytes, list[int]] = {}
    for number, pair in enumerate(pairs):
        # Big-endian, so that the order of the bytes is the order of the tokens.
        by_context.setdefault(pair.context.astype(">u4").tobytes(), []).append(number)
    return [
        _Group(
            pairs[members[0]].context,
            members,
            max(len(pairs[number].continuation) for number in members),
        )
        for _, members in sorted(by_context.items())
    ]


def _families(groups: list[_Group], shares: bool) -> Iterator[tuple[np.ndarray, list[_Group]]]:
    """Yield groups whose contexts begin alike, with that beginning; the others with none."""
    alone: list[_Group] = []
    start = 0
    while start < len(groups):
        # Sorted neighbours have the longest common beginnings.
        root, end = groups[start].context[:-1], start + 1
        while shares and end < len(groups):
            common = _common(root, groups[end].context[:-1])
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


def _common(a: np.ndarray, b: np.ndarray) -> int:
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def _batches(family: list[_Group], root: int, limits: Limits) -> Iterator[list[_Group]]:
    """Yield groups of like length, as many as `limits` allow, and at least one."""
    batch: list[_Group] = []
    rows = longest = 0
    for group in sorted(family, key=lambda group: (len(group.context), group.longest)):
        size, n = max(longest, len(group.context) - root + group.longest), len(group.members)
        taken = Limits((rows + n) * size, (rows + n) * (root + size))
        if batch and (taken.tokens > limits.tokens or taken.positions > limits.positions):
            yield batch
            batch, rows, size = [], 0, len(group.context) - root + group.longest
        batch.append(group)
        rows, longest = rows + n, size
    if batch:
        yield batch


def _laid_out(pairs: Sequence[Pair], batch: list[_Group], done: int, shares: bool) -> _Batch:
    """Return a batch of groups, whose contexts begin with the same `done` tokens."""
    contexts, row_of = None, [0] * len(batch)
    # The last token of a context predicts the first of the continuation, and so stays with it.
    shared = min(len(group.context) for group in batch) - 1
    if shares and shared > done and any(len(group.members) > 1 for group in batch):
        contexts = np.stack([group.context[done:shared] for group in batch])
        done, row_of = shared, list(range(len(batch)))
    numbers = [number for group in batch for number in group.members]
    rows = [np.concatenate([pairs[n].context, pairs[n].continuation[:-1]])[done:] for n in numbers]
    tokens_BT = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, ids in zip(tokens_BT, rows, strict=True):
        row[: len(ids)] = ids
    first = np.array([len(pairs[n].context) - 1 - done for n in numbers])
    sizes = np.array([len(pairs[n].continuation) for n in numbers])
    starts = np.cumsum(sizes) - sizes
    return _Batch(
        numbers,
        contexts,
        np.repeat(row_of, [len(group.members) for group in batch]),
        tokens_BT,
        rows=np.repeat(np.arange(len(rows)), sizes),
        times=np.arange(sizes.sum()) - np.repeat(starts, sizes) + np.repeat(first, sizes),
        targets=np.concatenate([pairs[n].continuation for n in numbers]),
        starts=starts,
    )


def _score_batch(
    model: nn.Module, batch: _Batch, state: KeyValueCache | None
) -> Iterator[tuple[int, Scored]]:
    """Scores of the batch's pairs; `state` holds what all of their contexts begin with."""
    device = next(model.parameters()).device
    shares = can_share(model)
    if batch.contexts is not None:
        assert isinstance(model, GPT)
        groups, length = batch.contexts.shape
        if state is None:
            state = KeyValueCache(len(model.blocks), length)
        else:
            state = state.rows(torch.zeros(groups, dtype=torch.long, device=device), room=length)
        model.hidden(torch.from_numpy(batch.contexts).to(device), state)
    tokens = torch.from_numpy(batch.tokens).to(device)
    if state is not None:
        state = state.rows(torch.from_numpy(batch.row_of).to(device), room=tokens.shape[1])
    places = torch.from_numpy(batch.rows).to(device), torch.from_numpy(batch.times).to(device)
    if shares:
        assert isinstance(model, GPT)
        chosen, greedy = _picked(model, model.hidden(tokens, state)[places], batch.targets)
    else:
        chosen, greedy = _pick(model(tokens)[places], batch.targets)
    sums = np.add.reduceat(chosen, batch.starts)
    greedy_all = np.logical_and.reduceat(greedy, batch.starts)
    for number, total, most in zip(batch.numbers, sums, greedy_all, strict=True):
        yield number, Scored(float(total), bool(most))


def _picked(model: GPT, hidden_ND: Tensor, targets_N: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the head, on no more positions at once than there is room for."""
    size = max(HEAD_ELEMENTS // len(model.embedding.tokens.weight), 1)
    parts = [
        _pick(model.logits(hidden_ND[at : at + size]), targets_N[at : at + size])
        for at in range(0, len(hidden_ND), size)
    ]
    chosen, greedy = zip(*parts, strict=True)
    return np.concatenate(chosen), np.concatenate(greedy)


def _pick(logits_NV: Tensor, targets_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of every target, float64, and whether it is the most probable token."""
    log_probs_NV = F.log_softmax(logits_NV.float(), dim=-1)
    targets = torch.from_numpy(targets_N.astype(np.int64)).to(logits_NV.device)
    chosen = log_probs_NV.gather(-1, targets[:, None])[:, 0]
    greedy = log_probs_NV.argmax(dim=-1) == targets
    # On the host: not every device has float64.
    return chosen.cpu().double().numpy(), greedy.cpu().numpy()
