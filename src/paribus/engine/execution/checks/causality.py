"""An arm reads the past alone: shown in the dry run, and of every trained model before it counts.

What is compared, and what that cannot show, is in `engine.evaluation.leaks`. Here a model is
read in the ways that a trial reads it: as a stack trains it, and as it is evaluated.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import Dataset, batch
from paribus.engine.evaluation.leaks import (
    PLACES,
    Leak,
    Read,
    compare,
    find_leak,
    find_length_leak,
    tolerance,
)
from paribus.engine.evaluation.predictions import windows_per_batch
from paribus.engine.model import GPT, KeyValueCache
from paribus.engine.setting import Setting
from paribus.engine.training import PRODUCTS, Trainer
from paribus.errors import ParibusError
from paribus.rng import stream

FEW_ROWS = 2  # where the number of rows does not matter
SHORT_ROWS, SHORT = 16, 32  # rows and tokens of the texts that are changed at every position
FEW_PLACES = 8  # from which longer texts are changed in a brief check
CACHED = 8  # tokens, at most, that are read in pieces with a cache, and how many at least
LEAST_CACHED = 4
SHARPER = 10.0  # times as large are the weights with which a cache is compared in a dry run
SHARP_ALLOWED = 50  # times as much may what own code computes in float32 differ there
ORDER = (1, 0, 1)  # rows of what was read, as questions that begin alike go on from it


class NotCausalError(ParibusError):
    """A model's predictions follow what they must not, by so many `nats` of log-probability."""

    def __init__(self, words: str, nats: float) -> None:
        super().__init__(words)
        self.nats = nats


@dataclass(frozen=True)
class Reading:
    """A check that found no leak.

    Attributes:
        nats: the largest difference of a log-probability; 0 is bit-equal.
        positions: the share of a window's positions at which a look at the next token was tried.
    """

    nats: float
    positions: float


def require_causal_training(
    where: str,
    stack: Trainer,
    dataset: Dataset,
    *,
    gradients: bool,
    brief: bool = False,
    is_own: bool = True,
    diverged: Collection[int] = (),
) -> float:
    """Raise NotCausalError where the logits of a step of `stack` follow what they must not.

    Rows are the batches of all its replicas: none may know of another. `where` is for the error.
    With `gradients` they are recorded, as in training; a trained stack is read without, as they
    take a step's memory, and what opens for them alone lowers no held-out loss. If `brief` a
    short text is changed at every position, and a window at few; otherwise a window as far as two
    passes go. Which they are is drawn anew for other weights. Rows of replicas that `diverged` are
    changed as all others, and not compared: what they round is beyond bounds. Code that is not
    the user's own (`is_own`) is read in the precision that it trains in, and in float32 too only
    where it is not exact in that; if `brief`, the short text alone.

    Returns the largest difference that was seen, in nats of log-probability: 0 is bit-equal.
    """
    both = tuple(dict.fromkeys((False, stack.setting.training.precision != "float32")))
    R, size = len(stack.seeds), stack.setting.training.largest_batch
    if stack.devices > 1:  # the logits of a whole batch may not fit one device
        size = FEW_ROWS
    texts: list[tuple[Tensor, int]] = []
    if is_own or not brief:
        texts.append((_rows(stack, dataset, size), FEW_PLACES if brief else 2 * R * size))
    if brief:
        short = _rows(stack, dataset, SHORT_ROWS)[:, :SHORT]
        texts.append((short.contiguous(), SHORT))
    spared = np.isin(np.arange(R), list(diverged))
    if not is_own and both[1:]:
        with contextlib.suppress(NotCausalError):
            return _train_causally(where, stack, dataset, texts, both[1:], spared, gradients)
    return _train_causally(where, stack, dataset, texts, both, spared, gradients)


def _train_causally(
    where: str,
    stack: Trainer,
    dataset: Dataset,
    texts: Sequence[tuple[Tensor, int]],
    precisions: Sequence[bool],
    spared: np.ndarray,
    gradients: bool,
) -> float:
    """Check `texts`, each with how many positions are changed, with products in each of
    `precisions`: whether they are those of training, or float32."""
    setting, R = stack.setting, len(stack.seeds)
    lower = PRODUCTS[setting.training.precision]
    calls = count()

    def read(tokens_BT: Tensor, *, mixed: bool) -> Tensor:
        tokens_RBT = tokens_BT.reshape(R, -1, tokens_BT.shape[1])
        with seeded(next(calls)), torch.set_grad_enabled(gradients):
            return stack.logits(tokens_RBT, mixed=mixed)[0].detach().flatten(0, 1)

    seen, key = 0.0, _digest(stack.parameters(0))
    for mixed in precisions:
        # What rounds in float32 rounds more in the lower one; what is exact there is exact here.
        dtype = lower if mixed and seen > 0 else torch.float32
        for tokens_BT, places in texts:
            leak, largest = find_leak(
                partial(read, mixed=mixed),
                tokens_BT,
                dataset.vocab_size,
                tolerance(setting, dtype),
                stream(stack.seeds[0], "causality", "training", key),
                places,
                np.repeat(spared, len(tokens_BT) // R),
            )
            if leak is not None:
                _refuse(where, "in training", setting, leak, dtype)
            seen = max(seen, largest)
    return seen


def _rows(stack: Trainer, dataset: Dataset, size: int) -> Tensor:
    """[R size, T] tokens of the step that comes next, `size` of each replica."""
    seq_len, order = stack.setting.data.seq_len, dataset.windows
    found = [batch(dataset.train, seed, stack.t, size, seq_len, order) for seed in stack.seeds]
    return torch.from_numpy(np.concatenate(found)[:, :-1].copy()).to(stack.device)


def require_causal_reading(
    where: str,
    model: GPT,
    setting: Setting,
    dataset: Dataset,
    *,
    brief: bool = False,
    is_own: bool = True,
) -> Reading:
    """Check a model as it is evaluated: on held-out windows, cut off, and with a cache.

    As many windows at once as an evaluation reads, changed at up to PLACES positions, or as far as
    two passes go where no code is the user's own (`is_own`): which they are is drawn anew for other
    weights, and the trials of a study look at many. If `brief` as few as in
    `require_causal_training`, and, where no code is the user's own, the window alone.

    Weights that a large learning rate threw far can amplify what float32 rounds beyond any bound.
    A model of built-in parts alone is then read again in float64: what was rounding is gone there,
    and what is not is refused. Own code could know the type, and is judged by float32.
    """
    read = partial(_read_causally, where, setting, dataset, brief=brief, is_own=is_own)
    try:
        return read(model)
    except NotCausalError as error:
        device = next(model.parameters()).device
        if setting.model.modules.named or device.type == "mps":  # mps has no float64
            raise
        wide = read(deepcopy(model).double())
        return Reading(max(error.nats, wide.nats), wide.positions)


def _read_causally(
    where: str, setting: Setting, dataset: Dataset, model: GPT, *, brief: bool, is_own: bool
) -> Reading:
    seq_len, device = setting.data.seq_len, next(model.parameters()).device
    B = FEW_ROWS if brief else max(windows_per_batch(seq_len, dataset.vocab_size, device), FEW_ROWS)
    calls = count()

    def rows(size: int) -> Tensor:
        windows = batch(dataset.validation, 0, 0, size, seq_len)
        return torch.from_numpy(windows[:, :-1].copy()).to(device)

    def read(tokens_BT: Tensor) -> Tensor:
        with seeded(next(calls)), torch.no_grad():
            return model(tokens_BT)

    texts = [(rows(B), FEW_PLACES if brief else PLACES if is_own else min(2 * B, PLACES))]
    if brief and is_own:
        texts.append((rows(SHORT_ROWS)[:, :SHORT].contiguous(), SHORT))
    was_training, allowed, seen = model.training, tolerance(setting), 0.0
    named = model.named_parameters()
    key = _digest({name: value.detach().cpu().numpy() for name, value in named})
    rng = stream(0, "causality", "evaluation", key)
    model.eval()
    try:
        for tokens_BT, places in texts:
            leak, largest = find_leak(read, tokens_BT, dataset.vocab_size, allowed, rng, places)
            seen = max(seen, largest)
            if leak is None:
                leak, _ = find_length_leak(read, tokens_BT[:FEW_ROWS], allowed, rng)
            if leak is not None:
                _refuse(where, "in evaluation", setting, leak, torch.float32)
        if model.can_cache and seq_len > LEAST_CACHED:
            few = texts[0][0][:FEW_ROWS]
            _require_same_with_cache(where, model, setting, read, few, allowed)
            if brief and is_own and setting.model.modules.named:
                _require_same_when_sharp(where, model, setting, few, SHARP_ALLOWED * allowed)
    finally:
        model.train(was_training)
    return Reading(seen, min(texts[0][1] / max(seq_len - 1, 1), 1.0))


def _digest(weights: Mapping[str, np.ndarray]) -> str:
    """Names the draw of positions: none knows it before the weights are there."""
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(np.ascontiguousarray(weights[name]).data)
    return found.hexdigest()


def _require_same_with_cache(
    where: str, model: GPT, setting: Setting, read: Read, tokens_BT: Tensor, allowed: float
) -> None:
    """Raise ParibusError where reading piece by piece gives other logits than reading at once.

    Read as questions are (`evaluation.harness`): their common beginning; then its rows, in another
    order and repeated, go on with some tokens at once and with single ones; and the head is given
    positions of all rows side by side, [N, D].
    """
    named = _named(setting)
    order = torch.tensor(ORDER, device=tokens_BT.device)
    tokens, T = tokens_BT[order], tokens_BT.shape[1]
    whole, rest = read(tokens), min(CACHED, T - 1)
    cache = KeyValueCache(len(model.blocks), room=T - rest)
    try:
        with torch.no_grad():
            begun = model.hidden(tokens_BT[:, : T - rest], cache)[order]
            cache = cache.rows(order, room=rest)
            pieces = tokens[:, T - rest :].split([rest - 2, 1, 1], dim=1)
            hidden = torch.cat([begun, *(model.hidden(piece, cache) for piece in pieces)], dim=1)
            apart = model.logits(hidden.flatten(0, 1)).view_as(whole)
    except (ParibusError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ParibusError(
            f"{where}{named} fails when a text is read in pieces: {type(error).__name__}: {error}; "
            "a part that declares cached = True is called with what it remembers "
            "(paribus.engine.model.parts)"
        ) from error
    found, largest = compare(whole, apart, np.full(len(tokens), T), allowed)
    if found is not None:
        raise NotCausalError(
            f"{where}{named}: read in pieces with a cache, a log-probability differs by "
            f"{largest:.3g} nats from the same text read at once; its decoding cannot be trusted",
            largest,
        )


def _require_same_when_sharp(
    where: str, model: GPT, setting: Setting, tokens_BT: Tensor, allowed: float
) -> None:
    """Compare again with larger weights: before training, attention is so even that a cache which
    forgets a position changes nothing that could be seen.

    In float64, so that what larger weights do to rounding is not taken for a mistake. Own code that
    cannot be read in it is not compared.
    """
    sharp = deepcopy(model).double()
    with torch.no_grad():
        for parameter in sharp.blocks.parameters():
            if parameter.ndim > 1:
                parameter.mul_(SHARPER)

    def read(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return sharp(tokens)

    try:
        read(tokens_BT)
    except Exception:
        return
    _require_same_with_cache(where, sharp, setting, read, tokens_BT, allowed)


def _named(setting: Setting) -> str:
    """Return the modules of the arm's own, in brackets."""
    own = ", ".join(f"model.modules.{s} = '{p}'" for s, p in setting.model.modules.named.items())
    return f" ({own})" if own else ""


def _refuse(where: str, when: str, setting: Setting, leak: Leak, dtype: torch.dtype) -> None:
    """Raise the NotCausalError that says what leaks, and at which position."""
    what = {
        "repetition": "the same tokens read again give other logits: it draws random numbers or "
        "keeps something between calls; for dropout take paribus.extend.Dropout",
        "other rows": "its logits change with other rows of the batch; each row is a text of its "
        "own",
        "later tokens": "its logits change with tokens after it; a language model reads the past "
        "alone",
        "the length of the text": "its logits change when the text ends there; a language model "
        "reads the past alone",
    }[leak.cause]
    raise NotCausalError(
        f"{where}{_named(setting)}: at position t = {leak.position}, {when}, {what} "
        f"(by {leak.difference:.3g} nats; rounding explains {tolerance(setting, dtype):.1g})",
        leak.difference,
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's, NumPy's and PyTorch's global generators start from `seed` inside, and are put back.

    What does not depend on them gives the same bits inside and outside.
    """
    python, of_numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)
        if torch.cuda.is_initialized() or torch.backends.mps.is_available():
            torch.manual_seed(seed)
        else:  # the same; that notes each call, with the way to it, for a GPU
            torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(of_numpy)
