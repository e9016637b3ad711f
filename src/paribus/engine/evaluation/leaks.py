"""Does a language model read the past alone? Its logits are compared under changed tokens.

A model that sees a token before it predicts it lowers its loss by what it was told, and no control
of data, seeds or budget notices. So tokens are changed and logits that must not follow are
compared: those before a changed token, those of other rows of the batch, those of a text that was
cut off, those of the same tokens read a second time. Logits are compared, not gradients, so a path
that no gradient follows (a rounding, an argmax, a cache) is seen too.

What is compared are log-probabilities, in nats: a constant that is added to all logits changes no
prediction, and neither it nor one huge logit may set what passes for rounding.

With equal shapes a kernel sums in one order, and what a mask multiplies by zero adds exactly zero:
logits are bit-equal. Some causal operations are not: a convolution by FFT sums over all positions
and cancels what lies ahead up to rounding. And texts of another length go through other kernels.
For these `tolerance` says how much is allowed.

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

from paribus.engine.setting import Setting

Read = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V]

Cause = Literal["repetition", "other rows", "later tokens", "the length of the text"]

ROWS = 2  # that stay while all others are changed, one after the other
LENGTHS = 3  # at which a text is cut off
PLACES = 256  # from which tokens are changed, at most; of a shorter text all are
LARGE_LOGIT = 10.0  # of a model that is well scaled
NEAR = 30.0  # nats: an entry less probable than exp(-30) is compared relative to its depth
# No difference above it passes as rounding, in nats. Evaluation is in float32; in bfloat16 and
# float16 a model is trained alone, and a logit of 10 has neighbours at 0.06 and 0.008.
CEILING = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.0625}


@dataclass(frozen=True)
class Leak:
    """Logits that follow what they must not.

    Attributes:
        cause: what was changed: nothing (the same tokens were read again), other rows of the
            batch, later tokens of the row, or where the text ends.
        row, position: the first place where it shows.
        difference: the largest of a log-probability there, in nats.
    """

    cause: Cause
    row: int
    position: int
    difference: float


def rounding(setting: Setting, dtype: torch.dtype = torch.float32) -> float:
    """Return how far a logit may be rounded, relative to the largest one.

    eps (n_layer + 1) sqrt(K): each block and the head end in a sum of at most K products, whose
    rounding errors add up like a random walk (Higham & Mary 2019, SIAM J. Sci. Comput. 41(5)), and
    pass on through the residual stream.
    """
    model = setting.model
    longest = max(model.mlp.ratio * model.d_model, setting.data.seq_len)
    return torch.finfo(dtype).eps * (model.n_layer + 1) * math.sqrt(longest)


def tolerance(setting: Setting, dtype: torch.dtype = torch.float32) -> float:
    """Return the largest difference of a log-probability that is put down to rounding, in nats.

    Twice `rounding` of a logit of LARGE_LOGIT, as the normaliser rounds too, and never more than
    CEILING, however deep or wide the model is and however large its logits are. For the 8 blocks
    of 128 channels of `quickstart` that is 5e-4 nats.
    """
    return min(2 * LARGE_LOGIT * rounding(setting, dtype), CEILING[dtype])


def draw_places(T: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return at most `most` of the positions 1 ... T - 1 at random; the last is among them.

    Tokens are changed from such a position on; the one before it is where a look ahead shows.
    """
    last, others = [T - 1] if T > 1 else [], rng.permutation(np.arange(1, max(T - 1, 1)))
    chosen = np.array([*last, *others[: max(most - 1, 0)]], dtype=np.int64)
    return rng.permutation(chosen)


@torch.no_grad()
def find_leak(
    read: Read,
    tokens_BT: Tensor,
    vocab_size: int,
    allowed: float,
    rng: np.random.Generator,
    places: int = PLACES,
    spared: np.ndarray | None = None,
) -> tuple[Leak | None, float]:
    """Change tokens, and compare the log-probabilities that must stay.

    All rows but one are changed wholly, twice; then each row is changed from a position of its own
    on. These are `places` positions, at most, drawn by `rng` without replacement: every one of a
    text of up to `places` + 1 tokens. Rows that are `spared`, [B] true or false, are not compared.
    Gradients are whatever `read` makes them.

    Returns (the leak or None, the largest difference that was seen, in nats). A difference of at
    most `allowed` nats is no leak.
    """
    B, T = tokens_BT.shape
    if vocab_size < 2 or T < 2:
        return None, 0.0
    base = read(tokens_BT)
    # One row stays, and all others are changed from their first token on; then every row is
    # changed from a position of its own on.
    staying = range(B) if B < 3 else (0, *rng.choice(np.arange(1, B), ROWS - 1, replace=False))
    rounds = [np.where(np.arange(B) == row, T, 0) for row in staying] if B > 1 else []
    drawn = draw_places(T, places, rng)
    rounds += list(np.resize(drawn, (-(-len(drawn) // B), B)))
    seen = 0.0
    for kept_B in rounds:
        changed = _change(tokens_BT, kept_B, vocab_size, rng)
        compared = kept_B if spared is None else np.where(spared, 0, kept_B)
        found, largest = compare(base, read(changed), compared, allowed)
        seen = max(seen, largest)
        if found is not None:
            return _explain(read, tokens_BT, changed, found, allowed), seen
    return None, seen


@torch.no_grad()
def find_length_leak(
    read: Read, tokens_BT: Tensor, allowed: float, rng: np.random.Generator
) -> tuple[Leak | None, float]:
    """Cut the text off, after one token, before the last one and between; as `find_leak`."""
    B, T = tokens_BT.shape
    base, seen = read(tokens_BT), 0.0
    between = rng.integers(1, max(T, 2), size=LENGTHS - 2)
    for length in sorted({1, T - 1, *between.tolist()} - {0, T}):
        shorter = tokens_BT[:, :length].contiguous()
        kept_B = np.full(B, length)
        found, largest = compare(base[:, :length], read(shorter), kept_B, allowed)
        seen = max(seen, largest)
        if found is not None:
            return Leak("the length of the text", *found), seen
    return None, seen


def _change(
    tokens_BT: Tensor, kept_B: np.ndarray, vocab_size: int, rng: np.random.Generator
) -> Tensor:
    """Return a copy in which row b has other tokens from position kept_B[b] on."""
    steps = torch.from_numpy(rng.integers(1, vocab_size, size=tuple(tokens_BT.shape)))
    later = torch.arange(tokens_BT.shape[1])[None] >= torch.from_numpy(kept_B)[:, None]
    steps = torch.where(later, steps, 0).to(tokens_BT.device)
    return (tokens_BT + steps) % vocab_size


def compare(
    ours: Tensor, theirs: Tensor, kept_B: np.ndarray, allowed: float
) -> tuple[tuple[int, int, float] | None, float]:
    """Compare logits [B, T, V], of row b before position kept_B[b], as log-probabilities.

    Returns ((row, position, difference) where they first differ by more than `allowed`, as
    in `Leak`, or None; the largest difference that was seen, in nats).
    """
    seen = 0.0
    for row in _differing(ours, theirs, kept_B):
        ours_TV, theirs_TV = ours[row, : kept_B[row]], theirs[row, : kept_B[row]]
        difference_T = _difference(ours_TV, theirs_TV)
        largest = float(difference_T.max())
        seen = max(seen, largest)
        if largest > allowed:
            position = int((difference_T > allowed).nonzero()[0])
            return (row, position, largest), seen
    return None, seen


def _differing(ours: Tensor, theirs: Tensor, kept_B: np.ndarray) -> list[int]:
    """Return the rows b that are not bit-equal before position kept_B[b]; a NaN equals nothing.

    An accelerator is asked once for all rows. On a CPU, where asking costs nothing, each row is
    compared by itself: that takes no memory.
    """
    if ours.device.type == "cpu":
        rows = enumerate(kept_B)
        return [b for b, n in rows if not torch.equal(ours[b, :n], theirs[b, :n])]
    return _differing_at_once(ours, theirs, kept_B)


def _differing_at_once(ours: Tensor, theirs: Tensor, kept_B: np.ndarray) -> list[int]:
    places_T = torch.arange(ours.shape[1], device=ours.device)
    kept_B1 = torch.from_numpy(kept_B).to(ours.device)[:, None]
    other_BT = (ours != theirs).any(dim=-1) & (places_T < kept_B1)
    return other_BT.any(dim=1).nonzero()[:, 0].tolist()


def _difference(ours_TV: Tensor, theirs_TV: Tensor) -> Tensor:
    """Return [T] the largest difference of a log-probability, in nats.

    That of an entry further down than NEAR counts by its share of the depth: a logit of -1e9,
    which masks, rounds by 64. Two that are both NaN or both infinite are equal.
    """
    ours, theirs = (_wide(logits).log_softmax(dim=-1) for logits in (ours_TV, theirs_TV))
    equal = (ours == theirs) | (ours.isnan() & theirs.isnan())
    depth = (-torch.maximum(ours, theirs) / NEAR).clamp(min=1)
    difference = ((ours - theirs).abs() / depth).masked_fill(equal, 0.0)
    return difference.nan_to_num(nan=math.inf).amax(dim=-1)


def _wide(logits: Tensor) -> Tensor:
    """Return `logits` in float64, which not every device has."""
    return (logits.cpu() if logits.device.type == "mps" else logits).double()


def _explain(
    read: Read,
    tokens_BT: Tensor,
    changed: Tensor,
    found: tuple[int, int, float],
    allowed: float,
) -> Leak:
    """Return which change did it: none of it, that of other rows, or that of later tokens."""
    row = found[0]
    everything = np.full(len(tokens_BT), tokens_BT.shape[1])
    again, _ = compare(read(tokens_BT), read(tokens_BT.clone()), everything, allowed)
    if again is not None:
        return Leak("repetition", *again)
    others = changed.clone()
    others[row] = tokens_BT[row]
    only_row = np.where(np.arange(len(tokens_BT)) == row, tokens_BT.shape[1], 0)
    by_rows, _ = compare(read(tokens_BT), read(others), only_row, allowed)
    if by_rows is not None:
        return Leak("other rows", *by_rows)
    return Leak("later tokens", *found)
