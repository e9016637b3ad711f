"""The causality test: no prediction of a language model may follow a later token or another row.

A model that sees a token before it predicts it has a lower loss, and no control of data, seeds or
budget notices. So tokens are changed, and the logits that must not follow are compared: those
before a changed token, those of other rows of the batch, those of a text that was cut off, and
those of the same tokens read again. Logits are compared, not gradients, so that a path without a
gradient (a rounding, an argmax, a cache) is seen too. Log-probabilities in nats are compared,
because a constant that is added to all logits changes no prediction.

With equal shapes a kernel sums in one order, and what a mask multiplies by zero adds exactly zero:
logits are bit-equal. Some causal operations, such as a convolution by FFT, are causal up to
rounding, and texts of another length go through other kernels; see `tolerance`.

It is a test with many random cases, not a proof.

Axes: B batch, T time, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import Dataset, batch
from paribus.engine.evaluation.predictions import evaluating, windows_per_batch
from paribus.engine.model import GPT, KeyValueCache
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed
from paribus.rng import stream

Read = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V]
Cause = Literal["repetition", "other rows", "later tokens", "the length of the text"]

CAUSES: dict[Cause, str] = {
    "repetition": "the same tokens read again give other logits: it draws random numbers or keeps "
    "something between calls; for dropout use paribus.extend.Dropout",
    "other rows": "its logits change with other rows of the batch; each row is a text of its own",
    "later tokens": "its logits change with tokens after it; a language model reads the past alone",
    "the length of the text": "its logits change when the text ends there; a language model reads "
    "the past alone",
}
ROWS = 2  # rows that stay while all others are changed, or whose number does not matter
LENGTHS = 3  # lengths to which a text is cut off
MOST_PLACES = 256  # positions from which tokens are changed
SHORT_ROWS, SHORT = 16, 32  # rows and tokens of the text that is changed at every position
FEW_PLACES = 8  # positions at which a window is changed in a brief test
CACHED, LEAST_CACHED = 8, 4  # tokens that are read in pieces; a shorter text is read at once
ORDER = (1, 0, 1)  # rows that go on from a common beginning, as questions of tasks do
SHARPER, SHARP_ALLOWED = 10.0, 50  # factors of weights and tolerance for a cache
LARGE_LOGIT = 10.0  # of a model that is well scaled
NEAR = 30.0  # nats: an entry less probable than exp(-30) is compared relative to its depth
CEILING = 1e-3  # nats: no larger difference passes as rounding in float32


class NotCausalError(ParibusError):
    """A prediction follows what it must not, by `nats` of log-probability."""

    def __init__(self, words: str, nats: float) -> None:
        super().__init__(words, code="own_code")
        self.nats = nats


class Leak(NamedTuple):
    """Logits that follow what they must not.

    Attributes:
        cause: what was changed; "repetition" is nothing.
        row, position: the first place that differs.
        difference: the largest of a log-probability there, in nats.
    """

    cause: Cause
    row: int
    position: int
    difference: float


class Reading(NamedTuple):
    """Result of a test that passed.

    Attributes:
        nats: the largest difference of a log-probability; 0 is bit-equal.
        positions: the share of a window's positions at which the next token was changed.
    """

    nats: float
    positions: float


def tolerance(setting: Setting) -> float:
    """Return the largest difference of a log-probability that passes as rounding, in nats.

    2 LARGE_LOGIT eps (n_layer + 1) sqrt(K), at most CEILING: each block and the head end in a sum
    of at most K products, whose rounding errors add up like a random walk (Higham & Mary 2019, SIAM
    J. Sci. Comput. 41(5)) and pass on through the residual stream; the normaliser rounds too. For
    the 8 blocks of 128 channels of `quickstart` that is 5e-4 nats.
    """
    model = setting.model
    longest = max(model.mlp.ratio * model.d_model, setting.data.seq_len)
    eps = torch.finfo(torch.float32).eps
    return min(2 * LARGE_LOGIT * eps * (model.n_layer + 1) * math.sqrt(longest), CEILING)


def require_causal(
    where: str, model: GPT, setting: Setting, dataset: Dataset, *, brief: bool = False
) -> Reading:
    """Test a model as it is evaluated: on held-out windows, cut off, and with a cache.

    The windows of a batch are changed at two positions each, up to MOST_PLACES. If `brief`, few
    windows are changed at FEW_PLACES, and for custom modules a short text at every position.
    `where` is for the error, and decides which positions are drawn.

    Weights that a large learning rate threw far amplify the rounding of float32. So a model that
    fails is read again in float64, if it can be. Raises NotCausalError.
    """
    try:
        return _read_causally(where, model, setting, dataset, brief)
    except NotCausalError as error:
        try:
            wide = deepcopy(model).double()
            reading = _read_causally(where, wide, setting, dataset, brief)
        except Exception:  # it fails there too, or a device or a module has no float64
            raise error from None
        return Reading(max(error.nats, reading.nats), reading.positions)


def _read_causally(
    where: str, model: GPT, setting: Setting, dataset: Dataset, brief: bool
) -> Reading:
    seq_len, device = setting.data.seq_len, next(model.parameters()).device
    has_own_code = bool(setting.model.modules.named)

    def rows(size: int) -> Tensor:
        windows = batch(dataset.validation, 0, 0, size, seq_len)
        return torch.from_numpy(windows[:, :-1].copy()).to(device)

    B = max(windows_per_batch(seq_len, dataset.vocab_size, device), ROWS)
    texts = [(rows(B), min(2 * B, MOST_PLACES))]
    if brief:
        texts = brief_texts(rows, has_own_code=has_own_code)
    with evaluating(model):
        seen = require_no_leak(
            (where, "in evaluation"), model, texts, setting, dataset.vocab_size, where, cut_off=True
        )
        tokens_BT = texts[-1][0][:ROWS]
        if model.can_cache and seq_len > LEAST_CACHED:
            _require_same_with_cache(where, model, setting, tokens_BT, tolerance(setting))
            if brief and has_own_code:
                _require_same_when_sharp(where, model, setting, tokens_BT)
    return Reading(seen, min(texts[-1][1] / max(seq_len - 1, 1), 1.0))


Texts = list[tuple[Tensor, int]]  # (tokens [B, T], at how many positions they are changed)


def brief_texts(rows: Callable[[int], Tensor], *, has_own_code: bool) -> Texts:
    """Return the texts of a brief test."""
    windows = [(rows(ROWS), FEW_PLACES)]
    if not has_own_code:
        return windows
    return [(rows(SHORT_ROWS)[:, :SHORT].contiguous(), SHORT), *windows]


def require_no_leak(
    where: tuple[str, str],
    read: Read,
    texts: Texts,
    setting: Setting,
    vocab_size: int,
    purpose: str,
    *,
    cut_off: bool = False,
) -> float:
    """Return the largest difference that passes as rounding, in nats; texts are also `cut_off`.

    `where` says which model in which mode, for errors; `purpose` decides which positions are drawn.
    Raises NotCausalError with what leaks, and at which position.
    """
    allowed, rng, seen = tolerance(setting), stream(0, "causality", purpose), 0.0
    for tokens_BT, places in texts:
        leak, largest = find_leak(read, tokens_BT, vocab_size, allowed, rng, places)
        seen = max(seen, largest)
        if cut_off:
            leak = leak or find_length_leak(read, tokens_BT[:ROWS], allowed, rng)
        if leak is not None:
            raise NotCausalError(
                f"{where[0]}{_named_modules(setting)}: at position t = {leak.position}, "
                f"{where[1]}, {CAUSES[leak.cause]} (by {leak.difference:.3g} nats; rounding "
                f"explains {allowed:.1g})",
                leak.difference,
            )
    return seen


@torch.no_grad()
def _require_same_when_sharp(where: str, model: GPT, setting: Setting, tokens_BT: Tensor) -> None:
    """Compare again with larger weights: before training, attention is so even that a cache which
    forgets a position changes nothing. A model without float64 is not compared."""
    sharp = deepcopy(model).double()
    for parameter in sharp.blocks.parameters():
        parameter.mul_(SHARPER if parameter.ndim > 1 else 1)
    try:
        sharp(tokens_BT)
    except Exception:
        return
    _require_same_with_cache(where, sharp, setting, tokens_BT, SHARP_ALLOWED * tolerance(setting))


@torch.no_grad()
def _require_same_with_cache(
    where: str, model: GPT, setting: Setting, tokens_BT: Tensor, allowed: float
) -> None:
    """Raise ParibusError if reading piece by piece gives other logits than reading at once.

    Pieces are as tasks read questions: a common beginning, from which rows go on in another order.
    """
    order = torch.tensor(ORDER, device=tokens_BT.device)
    tokens, T = tokens_BT[order], tokens_BT.shape[1]
    logits, rest = model(tokens), min(CACHED, T - 1)
    cache = KeyValueCache(len(model.blocks), room=T - rest)
    where = f"{where}{_named_modules(setting)}"
    advice = (
        "a part that declares cached = True is called with what it remembers "
        "(paribus.engine.model.parts)"
    )
    with blamed(f"{where} fails when a text is read in pieces", advice):
        begun = model.hidden(tokens_BT[:, : T - rest], cache)[order]
        cache = cache.rows(order, room=rest)
        pieces = tokens[:, T - rest :].split([rest - 2, 1, 1], dim=1)
        hidden = torch.cat([begun, *(model.hidden(piece, cache) for piece in pieces)], dim=1)
        apart = model.logits(hidden.flatten(0, 1)).view_as(logits)
    place, largest = compare(logits, apart, np.full(len(tokens), T), allowed)
    if place is not None:
        raise NotCausalError(
            f"{where}: read in pieces with a cache, a log-probability differs by {largest:.3g} "
            "nats from the same text read at once; its decoding cannot be trusted",
            largest,
        )


def _named_modules(setting: Setting) -> str:
    """Return the user's own modules, in brackets."""
    named = [
        f"model.modules.{site} = '{path}'" for site, path in setting.model.modules.named.items()
    ]
    return f" ({', '.join(named)})" if named else ""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Start Python's, NumPy's and PyTorch's global generators from `seed`, and put them back."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)
        if devices or torch.backends.mps.is_available():
            torch.manual_seed(seed)
        else:  # the same, and faster: the former notes each call for a GPU
            torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def draw_places(T: int, limit: int, rng: np.random.Generator) -> np.ndarray:
    """Return at most `most` of the positions 1 ... T - 1 at random; the last is among them.

    Tokens are changed from such a position on; a look ahead shows at the one before it.
    """
    last, inner = [T - 1] if T > 1 else [], rng.permutation(np.arange(1, max(T - 1, 1)))
    chosen = np.array([*last, *inner[: max(limit - 1, 0)]], dtype=np.int64)
    return rng.permutation(chosen)


@torch.no_grad()
def find_leak(
    read: Read,
    tokens_BT: Tensor,
    vocab_size: int,
    allowed: float,
    rng: np.random.Generator,
    places: int = MOST_PLACES,
) -> tuple[Leak | None, float]:
    """Change tokens, and compare the log-probabilities that must stay.

    All rows but one are changed wholly, twice; then each row is changed from a position of its own
    on. These are at most `places` positions, drawn without replacement. Gradients are recorded if
    `read` records them.

    Returns (the leak or None, the largest difference that was seen, in nats). A difference of at
    most `allowed` nats is no leak.
    """
    B, T = tokens_BT.shape
    if vocab_size < 2 or T < 2:
        return None, 0.0
    reads, row_B = _reseeded(read), np.arange(B)
    base = reads(tokens_BT)
    staying = range(B) if B < 3 else (0, *rng.choice(row_B[1:], ROWS - 1, replace=False))
    rounds = [np.where(row_B == row, T, 0) for row in staying] if B > 1 else []
    drawn = draw_places(T, places, rng)
    rounds += list(np.resize(drawn, (-(-len(drawn) // B), B)))
    seen = 0.0
    for kept_B in rounds:
        # Row b has other tokens from position kept_B[b] on.
        steps = torch.from_numpy(rng.integers(1, vocab_size, size=(B, T)))
        later = torch.arange(T)[None] >= torch.from_numpy(kept_B)[:, None]
        changed = (tokens_BT + torch.where(later, steps, 0).to(tokens_BT.device)) % vocab_size
        place, largest = compare(base, reads(changed), kept_B, allowed)
        seen = max(seen, largest)
        if place is None:
            continue
        # Which change did it: none of it, that of other rows, or that of later tokens?
        is_row, altered = row_B == place[0], changed.clone()
        altered[place[0]] = tokens_BT[place[0]]
        causes: list[tuple[Cause, Tensor, np.ndarray]] = [
            ("repetition", tokens_BT.clone(), np.full(B, T)),
            ("other rows", altered, np.where(is_row, T, 0)),
        ]
        for cause, tried, kept in causes:
            again, _ = compare(reads(tokens_BT), reads(tried), kept, allowed)
            if again is not None:
                return Leak(cause, *again), seen
        return Leak("later tokens", *place), seen
    return None, seen


@torch.no_grad()
def find_length_leak(
    read: Read, tokens_BT: Tensor, allowed: float, rng: np.random.Generator
) -> Leak | None:
    """Cut the text off, after one token, before the last one and between, as `find_leak`."""
    B, T = tokens_BT.shape
    reads = _reseeded(read)
    base = reads(tokens_BT)
    between = rng.integers(1, max(T, 2), size=LENGTHS - 2)
    for length in sorted({1, T - 1, *between.tolist()} - {0, T}):
        shorter = reads(tokens_BT[:, :length].contiguous())
        place, _ = compare(base[:, :length], shorter, np.full(B, length), allowed)
        if place is not None:
            return Leak("the length of the text", *place)
    return None


def _reseeded(read: Read) -> Read:
    """Return `read` with other global generators at every call."""
    calls = itertools.count()

    def reads(tokens_BT: Tensor) -> Tensor:
        with seeded(next(calls)):
            return read(tokens_BT)

    return reads


def compare(
    ours: Tensor, theirs: Tensor, kept_B: np.ndarray, allowed: float
) -> tuple[tuple[int, int, float] | None, float]:
    """Compare logits [B, T, V], of row b before position kept_B[b], as log-probabilities.

    Returns ((row, position, difference) where they first differ by more than `allowed`, as
    in `Leak`, or None; the largest difference that was seen, in nats).
    """
    seen = 0.0
    for row, n in enumerate(kept_B):
        if torch.equal(ours[row, :n], theirs[row, :n]):
            continue
        difference_T = _difference(ours[row, :n], theirs[row, :n])
        largest = float(difference_T.max())
        seen = max(seen, largest)
        if largest > allowed:
            position = int((difference_T > allowed).nonzero()[0])
            return (row, position, largest), seen
    return None, seen


def _difference(ours_TV: Tensor, theirs_TV: Tensor) -> Tensor:
    """Return [T] the largest difference of a log-probability, in nats.

    That of an entry further down than NEAR counts by its share of the depth: a logit of -1e9,
    which masks, rounds by 64. Two that are both NaN or both infinite are equal.
    """
    # In float64, which not every device has.
    both = [x.cpu() if x.device.type == "mps" else x for x in (ours_TV, theirs_TV)]
    ours, theirs = (logits.double().log_softmax(dim=-1) for logits in both)
    equal = (ours == theirs) | (ours.isnan() & theirs.isnan())
    depth = (-torch.maximum(ours, theirs) / NEAR).clamp(min=1)
    difference = ((ours - theirs).abs() / depth).masked_fill(equal, 0.0)
    return difference.nan_to_num(nan=math.inf).amax(dim=-1)
