"""Causality test: predictions must not depend on later tokens or on other rows.

A model that can see the token it should predict has a lower loss, even if data, seeds and budget
are controlled. The test changes tokens, and checks that predictions before the changed tokens and
in other rows of the batch stay the same. It compares logits rather than gradients, because leaks
through non-differentiable operations (rounding, argmax) count too. Logits are compared as
log-probabilities, because adding a constant to all logits changes no prediction.

With equal shapes, a kernel sums in the same order and masked values add exactly zero, so logits are
bit-equal. Some operations, such as a convolution by FFT, are causal only up to rounding, and
decoding with a cache uses different kernels; see `tolerance`.

This is a randomized test, not a proof. Axes: B batch, T time, V vocabulary.
"""

from __future__ import annotations

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
from paribus.engine.evaluation.predictions import evaluating
from paribus.engine.model import GPT, KeyValueCache
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed
from paribus.rng import stream

FAULTS = {  # what was changed: the fault and the advice
    "other rows": ("mixes rows of the batch", "does forward reduce over dim 0?"),
    "tokens after t": ("is not causal", "use only tokens up to t"),
}
MOST_ROWS, MOST_TOKENS = 16, 2**10  # of a batch, of at least two rows
LEAST_PLACES = 16  # positions from which tokens are changed
CACHED = 8  # tokens that are read in pieces
LARGE_LOGIT = 10.0  # of a model that is well scaled
NEAR = 30.0  # nats: an entry less probable than exp(-30) is compared relative to its depth
CEILING = 1e-3  # nats: no larger difference passes as rounding in float32


class NotCausalError(ParibusError):
    """Raised if a model's predictions depend on later tokens or on other rows of the batch.

    `nats` is the largest observed change of a log-probability, in nats.
    """

    def __init__(self, words: str, nats: float) -> None:
        super().__init__(words, code="own_code")
        self.nats = nats


class Reading(NamedTuple):
    """Result of a passed causality test.

    Attributes:
        nats: largest change of a log-probability, in nats; 0 if logits were bit-equal.
        positions: fraction of the window's positions from which tokens were changed.
    """

    nats: float
    positions: float


def tolerance(setting: Setting) -> float:
    """Return the largest log-probability difference that counts as rounding, in nats.

    This is min(2 LARGE_LOGIT eps (n_layer + 1) sqrt(K), CEILING). Each block and the head end in a
    sum of at most K products, whose rounding errors accumulate like a random walk (Higham & Mary
    2019, SIAM J. Sci. Comput. 41(5)) and propagate through the residual stream. Log-softmax adds
    rounding errors of its own.
    """
    model = setting.model
    longest = max(model.mlp.ratio * model.d_model, setting.data.seq_len)
    eps = torch.finfo(torch.float32).eps
    return min(2 * LARGE_LOGIT * eps * (model.n_layer + 1) * math.sqrt(longest), CEILING)


def require_causal(where: str, model: GPT, setting: Setting, dataset: Dataset) -> Reading:
    """Check that a model is causal on held-out windows, with and without a key-value cache.

    `where` names the model in error messages. Large weights, as after a large learning rate,
    amplify float32 rounding, so a failing model is retested in float64 if possible. Raises
    NotCausalError if the model is not causal.
    """
    seq_len, device = setting.data.seq_len, next(model.parameters()).device
    named = [f"model.modules.{s} = '{path}'" for s, path in setting.model.modules.named.items()]
    where += f" ({', '.join(named)})" if named else ""
    B = max(min(MOST_TOKENS // seq_len, MOST_ROWS), 2)
    windows = batch(dataset.validation, 0, 0, B, seq_len)
    tokens_BT = torch.from_numpy(windows[:, :-1].copy()).to(device)

    def test(model: GPT) -> Reading:
        with evaluating(model):
            reading = require_no_leak(model, tokens_BT, setting, dataset.vocab_size, where)
            if model.can_cache and seq_len > CACHED:
                _require_same_with_cache(where, model, setting, tokens_BT[:2])
        return reading

    try:
        return test(model)
    except NotCausalError as error:
        try:
            reading = test(deepcopy(model).double())
        except Exception:  # it fails there too, or a device or a module has no float64
            raise error from None
        # Infinite: logits overflow float32, as of a trial that diverged.
        nats = max(error.nats, reading.nats) if math.isfinite(error.nats) else reading.nats
        return Reading(nats, reading.positions)


@torch.no_grad()
def require_no_leak(
    read: Callable[[Tensor], Tensor],
    tokens_BT: Tensor,
    setting: Setting,
    vocab_size: int,
    where: str,
) -> Reading:
    """Check that log-probabilities do not depend on other rows or on later tokens.

    First, all rows but one are replaced. Then, each row is replaced from a random position on;
    positions are sampled without replacement. Every call of `read` starts from a different global
    random seed, so random predictions fail, too.

    Args:
        read: maps token ids [B, T] to logits [B, T, V].
        tokens_BT: original token ids; changed copies are compared with them.
        setting: configuration of the model.
        vocab_size: number of token ids, V.
        where: name of the model in error messages.

    Raises NotCausalError with the first position that differs.
    """
    (B, T), allowed, seen = tokens_BT.shape, tolerance(setting), 0.0
    rng = stream(0, "causality", "evaluation")
    n_places = max(2 * B, LEAST_PLACES)
    places = np.append(rng.permutation(np.arange(1, T - 1))[: n_places - 1], T - 1)
    rounds = [("other rows", np.where(np.arange(B) == row, T, 0)) for row in {0, B - 1}]
    rounds += [
        ("tokens after t", kept_B) for kept_B in np.resize(places, (-(-len(places) // B), B))
    ]
    with seeded(0):
        base = read(tokens_BT)
    for number, (changed, kept_B) in enumerate(rounds if min(vocab_size, T) > 1 else ()):
        steps = rng.integers(1, vocab_size, size=(B, T)) * (np.arange(T) >= kept_B[:, None])
        changed_BT = (tokens_BT + torch.from_numpy(steps).to(tokens_BT.device)) % vocab_size
        with seeded(1 + number):
            logits = read(changed_BT)
        for row, kept in enumerate(kept_B.tolist()):
            difference_T = differences(base[row, :kept], logits[row, :kept])
            seen = max(seen, *difference_T.tolist(), 0.0)
            if seen > allowed:
                fault, advice = FAULTS[changed]
                raise NotCausalError(
                    f"{where} {fault}: at position t = "
                    f"{int((difference_T > allowed).nonzero()[0])}, in evaluation mode, "
                    f"log-probabilities change by {seen:.3g} nats (rounding explains at most "
                    f"{allowed:.1g}) if {changed} change; {advice}",
                    seen,
                )
    return Reading(seen, min(len(places) / max(T - 1, 1), 1.0))


@torch.no_grad()
def _require_same_with_cache(where: str, model: GPT, setting: Setting, tokens_BT: Tensor) -> None:
    """Raise NotCausalError if decoding with and without a cache gives different logits."""
    T = tokens_BT.shape[1]
    advice = (
        "make every module with cached = True accept the cache as an argument "
        "(see paribus.engine.model.parts)"
    )
    with blamed(f"{where} fails with a key-value cache", advice):
        cache = KeyValueCache(len(model.blocks))
        pieces = tokens_BT.split([T - CACHED, CACHED - 2, 1, 1], dim=1)
        hidden = [model.hidden(piece, cache) for piece in pieces]
        apart = model.logits(torch.cat(hidden, dim=1).flatten(0, 1))
    largest = float(differences(model(tokens_BT).flatten(0, 1), apart).max())
    if largest > tolerance(setting):
        raise NotCausalError(
            f"{where}: log-probabilities with and without a key-value cache differ by "
            f"{largest:.3g} nats, so decoding would be wrong; fix the module that sets "
            "cached = True, or remove cached = True",
            largest,
        )


def differences(ours_TV: Tensor, theirs_TV: Tensor) -> Tensor:
    """Return the largest log-probability difference at each position, [T], in nats.

    For log-probabilities below -NEAR, differences are relative, because float32 values near a
    masking logit of -1e9 are 64 apart. Two NaN or two equal infinities count as equal.
    """
    if torch.equal(ours_TV, theirs_TV):
        return torch.zeros(len(ours_TV))
    # In float64, which not every device has.
    both = [x.cpu() if x.device.type == "mps" else x for x in (ours_TV, theirs_TV)]
    ours, theirs = (logits.double().log_softmax(dim=-1) for logits in both)
    equal = (ours == theirs) | (ours.isnan() & theirs.isnan())
    depth = (-torch.maximum(ours, theirs) / NEAR).clamp(min=1)
    difference = ((ours - theirs).abs() / depth).masked_fill(equal, 0.0)
    return difference.nan_to_num(nan=math.inf).amax(dim=-1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, NumPy's and PyTorch's global generators, and restore their state on exit."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
