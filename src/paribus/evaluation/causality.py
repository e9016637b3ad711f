"""Does a language model read the past alone? Its logits are compared under changed tokens.

A model that sees a token before it predicts it lowers its loss by what it was told, and no control
of data, seeds or budget notices. So tokens are changed and logits that must not follow are
compared: those before a changed token, those of other rows of the batch, those of a text that was
cut off, those of the same tokens read a second time. Logits are compared, not gradients, so a path
that no gradient follows (a rounding, an argmax, a cache) is seen too.

With equal shapes a kernel sums in one order, and what a mask multiplies by zero adds exactly zero:
logits are bit-equal. Some causal operations are not: a convolution by FFT sums over all positions
and cancels what lies ahead up to rounding. And texts of another length go through other kernels.
For these `rounding` says how much is allowed.

What this cannot show: a path that opens for certain tokens, lengths or numbers of calls which were
not among those compared. It is a test with many random cases, not a proof.

Axes: B batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from paribus.study import Setting

Read = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V]

Cause = Literal["repetition", "other rows", "later tokens", "the length of the text"]

ROUNDS = 2  # of changed tokens
LENGTHS = 3  # at which a text is cut off


@dataclass(frozen=True)
class Leak:
    """Logits that follow what they must not.

    Attributes:
        cause: what was changed: nothing (the same tokens were read again), other rows of the
            batch, later tokens of the row, or where the text ends.
        row, position: the first place where it shows.
        difference: the largest of a logit there.
        tokens, changed: [B, T] what was read and compared, for whoever looks where it starts.
    """

    cause: Cause
    row: int
    position: int
    difference: float
    tokens: Tensor
    changed: Tensor


def rounding(setting: Setting, dtype: torch.dtype = torch.float32) -> float:
    """The largest difference of logits that is put down to rounding, relative to the largest logit.

    eps (n_layer + 1) sqrt(K): each block and the head end in a sum of at most K products, whose
    rounding errors add up like a random walk (Higham & Mary 2019, SIAM J. Sci. Comput. 41(5)), and
    pass on through the residual stream. The loss of a token moves by at most twice the largest
    difference of a logit, so nothing below it can lower a loss by more: for the 8 blocks of 128
    channels of `quickstart` and logits of 10 that is 5e-4 nats.
    """
    model = setting.model
    longest = max(model.mlp.ratio * model.d_model, setting.data.seq_len)
    return torch.finfo(dtype).eps * (model.n_layer + 1) * math.sqrt(longest)


@torch.no_grad()
def find_leak(
    read: Read,
    tokens_BT: Tensor,
    vocab_size: int,
    allowed: float,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> tuple[Leak | None, float]:
    """Change tokens, and compare the logits that must stay.

    In every round one row stays as it is, another one each time, and each other is changed from a
    position of its own on; over rows and rounds these are spread over the whole text, its last
    token included.
    Gradients are whatever `read` makes them.

    Returns (the leak or None, the largest difference that was seen relative to the largest logit).
    A difference of at most `allowed`, relative too, is no leak.
    """
    B, T = tokens_BT.shape
    if vocab_size < 2:
        return None, 0.0
    base = read(tokens_BT)
    places = np.linspace(1, max(T - 1, 1), max((B - 1) * rounds, 1)).round().astype(int)
    seen = 0.0
    for r in range(rounds):
        kept_B = np.roll([T, *np.resize(places[r::rounds], B - 1)], r)
        changed = _change(tokens_BT, kept_B, vocab_size, rng)
        found, largest = _compare(base, read(changed), kept_B, allowed)
        seen = max(seen, largest)
        if found is not None:
            return _explain(read, tokens_BT, changed, found, allowed), seen
    return None, seen


@torch.no_grad()
def find_length_leak(read: Read, tokens_BT: Tensor, allowed: float) -> tuple[Leak | None, float]:
    """Cut the text off, and compare the logits of what is left; returns as `find_leak`."""
    B, T = tokens_BT.shape
    base, seen = read(tokens_BT), 0.0
    for length in sorted({1 + (T - 2) * i // (LENGTHS - 1) for i in range(LENGTHS)} - {0, T}):
        shorter = tokens_BT[:, :length].contiguous()
        kept_B = np.full(B, length)
        found, largest = _compare(base[:, :length], read(shorter), kept_B, allowed)
        seen = max(seen, largest)
        if found is not None:
            row, position, difference = found
            return Leak(
                "the length of the text", row, position, difference, tokens_BT, shorter
            ), seen
    return None, seen


def _change(
    tokens_BT: Tensor, kept_B: np.ndarray, vocab_size: int, rng: np.random.Generator
) -> Tensor:
    """A copy in which row b has other tokens from position kept_B[b] on, every one of them."""
    steps = torch.from_numpy(rng.integers(1, vocab_size, size=tuple(tokens_BT.shape)))
    later = torch.arange(tokens_BT.shape[1])[None] >= torch.from_numpy(kept_B)[:, None]
    steps = torch.where(later, steps, 0).to(tokens_BT.device)
    return (tokens_BT + steps) % vocab_size


def _compare(
    ours: Tensor, theirs: Tensor, kept_B: np.ndarray, allowed: float
) -> tuple[tuple[int, int, float] | None, float]:
    """((row, position, difference) where kept logits first differ, the largest relative one)."""
    scale = max(float(ours.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max()), 1e-30)
    seen = 0.0
    for row, kept in enumerate(kept_B):
        difference_T = _difference(ours[row, :kept], theirs[row, :kept])
        largest = float(difference_T.max()) if kept else 0.0
        seen = max(seen, largest / scale)
        if largest > allowed * scale:
            position = int((difference_T > allowed * scale).nonzero()[0])
            return (row, position, largest), seen
    return None, seen


def _difference(ours_TV: Tensor, theirs_TV: Tensor) -> Tensor:
    """[T] the largest difference of a logit; two that are both NaN or both infinite are equal."""
    ours, theirs = ours_TV.float(), theirs_TV.float()
    equal = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return (ours - theirs).abs().masked_fill(equal, 0.0).nan_to_num(nan=math.inf).amax(dim=-1)


def _explain(
    read: Read, tokens_BT: Tensor, changed: Tensor, found: tuple[int, int, float], allowed: float
) -> Leak:
    """What of the change did it: none of it, that of other rows, or that of later tokens."""
    row, position, difference = found
    everything = np.full(len(tokens_BT), tokens_BT.shape[1])
    again, _ = _compare(read(tokens_BT), read(tokens_BT.clone()), everything, allowed)
    if again is not None:
        return Leak("repetition", *again, tokens_BT, tokens_BT)
    others = changed.clone()
    others[row] = tokens_BT[row]
    only_row = np.where(np.arange(len(tokens_BT)) == row, tokens_BT.shape[1], 0)
    by_rows, _ = _compare(read(tokens_BT), read(others), only_row, allowed)
    if by_rows is not None:
        return Leak("other rows", *by_rows, tokens_BT, others)
    return Leak("later tokens", row, position, difference, tokens_BT, changed)
