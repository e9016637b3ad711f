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
from typing import NamedTuple

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
Texts = list[tuple[Tensor, int]]  # (tokens [B, T], at how many positions they are changed)

CAUSES = {
    "repetition": "the same tokens read again give other logits: it draws random numbers or keeps "
    "something between calls; for dropout use paribus.extend.Dropout",
    "other rows": "its logits change with other rows of the batch; each row is a text of its own",
    "later tokens": "its logits change with tokens after it; a language model reads the past alone",
    "the length of the text": "its logits change when the text ends there; a language model reads "
    "the past alone",
}
ROWS = 2  # rows that stay while all others are changed, or whose number does not matter
MOST_PLACES = 256  # positions from which tokens are changed
SHORT_ROWS, SHORT = 16, 32  # rows and tokens of the text that is changed at every position
FEW_PLACES = 8  # positions at which a window is changed in a brief test
CACHED, LEAST_CACHED = 8, 4  # tokens that are read in pieces; a shorter text is read at once
ORDER = (1, 0, 1)  # rows that go on from a common beginning, as questions of tasks do
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

    cause: str
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

    if brief:
        texts = brief_texts(rows, has_own_code=has_own_code)
    else:
        B = max(windows_per_batch(seq_len, dataset.vocab_size, device), ROWS)
        texts = [(rows(B), min(2 * B, MOST_PLACES))]
    windows_BT, places = texts[-1]
    with evaluating(model):
        seen = require_no_leak(model, texts, setting, dataset.vocab_size, where, training=False)
        if model.can_cache and seq_len > LEAST_CACHED:
            _require_same_with_cache(where, model, setting, windows_BT[:ROWS])
    return Reading(seen, min(places / max(seq_len - 1, 1), 1.0))


def brief_texts(rows: Callable[[int], Tensor], *, has_own_code: bool) -> Texts:
    """Return the texts that a brief test changes; `rows(n)` gives n windows."""
    windows = [(rows(ROWS), FEW_PLACES)]
    if not has_own_code:
        return windows
    return [(rows(SHORT_ROWS)[:, :SHORT].contiguous(), SHORT), *windows]


def require_no_leak(
    read: Read, texts: Texts, setting: Setting, vocab_size: int, where: str, *, training: bool
) -> float:
    """Return the largest difference that passes as rounding, in nats.

    In evaluation, texts are cut off too. Raises NotCausalError with what leaks, and at which
    position.
    """
    mode, purpose = ("training", "training") if training else ("evaluation", where)
    allowed, rng, seen = tolerance(setting), stream(0, "causality", purpose), 0.0
    for tokens_BT, places in texts:
        leak, largest = find_leak(
            read, tokens_BT, vocab_size, allowed, rng, places, cut_off=not training
        )
        seen = max(seen, largest)
        if leak is not None:
            raise NotCausalError(
                f"{where}{_named_modules(setting)}: at position t = {leak.position}, in {mode}, "
                f"{CAUSES[leak.cause]} (by {leak.difference:.3g} nats; rounding explains "
                f"{allowed:.1g})",
                leak.difference,
            )
    return seen


@torch.no_grad()
def _require_same_with_cache(where: str, model: GPT, setting: Setting, tokens_BT: Tensor) -> None:
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
    place, largest = compare(logits, apart, np.full(len(tokens), T), tolerance(setting))
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


@torch.no_grad()
def find_leak(
    read: Read,
    tokens_BT: Tensor,
    vocab_size: int,
    allowed: float,
    rng: np.random.Generator,
    places: int = MOST_PLACES,
    *,
    cut_off: bool = False,
) -> tuple[Leak | None, float]:
    """Change tokens, and compare the log-probabilities that must stay.

    All rows but one are changed wholly, twice; then each row is changed from a position of its own
    on. These are at most `places` positions, drawn without replacement. If `cut_off`, some rows end
    after one token, before the last one, and between. Global generators start elsewhere at every
    call of `read`. Gradients are recorded if `read` records them.

    Returns (the leak or None, the largest difference of equal shapes that was seen, in nats). A
    difference of at most `allowed` nats is not a leak.
    """
    T, calls, seen = tokens_BT.shape[1], itertools.count(), 0.0
    if vocab_size < 2 or T < 2:
        return None, 0.0

    def read_again(tokens: Tensor) -> Tensor:
        with seeded(next(calls)):
            return read(tokens)

    base = read_again(tokens_BT)
    for cause, changed, kept_B in _changes(tokens_BT, vocab_size, rng, places):
        place, largest = compare(base, read_again(changed), kept_B, allowed)
        seen = max(seen, largest)
        if place is not None:
            again, _ = compare(
                base, read_again(tokens_BT.clone()), np.full_like(kept_B, T), allowed
            )
            return (Leak("repetition", *again) if again else Leak(cause, *place)), seen
    between = int(rng.integers(1, T)) if cut_off else 0
    for length in sorted({1, T - 1, between}) if cut_off else ():
        shorter = read_again(tokens_BT[:ROWS, :length].contiguous())
        place, _ = compare(base, shorter, np.full(len(shorter), length), allowed)
        if place is not None:
            return Leak("the length of the text", *place), seen
    return None, seen


def _changes(
    tokens_BT: Tensor, vocab_size: int, rng: np.random.Generator, places: int
) -> Iterator[tuple[str, Tensor, np.ndarray]]:
    """Yield what is changed, other tokens, and from which position on each row has them."""
    B, T = tokens_BT.shape
    staying = range(B) if B < 3 else (0, *rng.choice(np.arange(1, B), ROWS - 1, replace=False))
    rounds = [("other rows", np.where(np.arange(B) == row, T, 0)) for row in staying if B > 1]
    drawn = draw_places(T, places, rng)
    rounds += [("later tokens", kept_B) for kept_B in np.resize(drawn, (-(-len(drawn) // B), B))]
    for cause, kept_B in rounds:
        steps = torch.from_numpy(rng.integers(1, vocab_size, size=(B, T)))
        later = torch.arange(T)[None] >= torch.from_numpy(kept_B)[:, None]
        yield (
            cause,
            (tokens_BT + torch.where(later, steps, 0).to(tokens_BT.device)) % vocab_size,
            kept_B,
        )


def draw_places(T: int, limit: int, rng: np.random.Generator) -> np.ndarray:
    """Return at most `limit` of the positions 1 ... T - 1 at random; the last is among them.

    Tokens are changed from such a position on; a look ahead shows at the one before it.
    """
    inner = rng.permutation(np.arange(1, T - 1))
    return rng.permutation(np.array([T - 1, *inner[: limit - 1]]))


def compare(
    ours: Tensor, theirs: Tensor, kept_B: np.ndarray, allowed: float
) -> tuple[tuple[int, int, float] | None, float]:
    """Compare logits [B, T, V], of row b before position kept_B[b], as log-probabilities.

    Returns ((row, position, difference) where they first differ by more than `allowed`, as
    in `Leak`, or None; the largest difference that was seen, in nats).
    """
    seen = 0.0
    for row, n in enumerate(kept_B.tolist()):
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
