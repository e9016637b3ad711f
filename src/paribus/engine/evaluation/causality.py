"""Causality test: predictions must not depend on later tokens or on other rows.

A model that sees a token before it predicts it has a lower loss, and no control of data, seeds or
budget detects that. The test changes tokens and compares the predictions that must stay the same:
those before a changed token, and those of other rows of the batch. It compares logits rather than
gradients, because a path without a gradient (a rounding, an argmax) counts too. Logits are compared
as log-probabilities, because a constant added to all of them changes no prediction.

With equal shapes, a kernel sums in the same order and masked values add exactly zero, so logits are
bit-equal. Some operations, such as a convolution by FFT, are causal only up to rounding, and
decoding with a cache uses different kernels; see `tolerance`.

This is a test with many random cases, not a proof. Axes: B batch, T time, V vocabulary.
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

CAUSES = {
    "other rows": "logits depend on other rows of the batch; compute each row independently",
    "later tokens": "logits depend on tokens after it; use only tokens up to this position",
}
MOST_ROWS, MOST_TOKENS = 16, 2**10  # of a batch, of at least two rows
LEAST_PLACES = 16  # positions from which tokens are changed
CACHED = 8  # tokens that are read in pieces
LARGE_LOGIT = 10.0  # of a model that is well scaled
NEAR = 30.0  # nats: an entry less probable than exp(-30) is compared relative to its depth
CEILING = 1e-3  # nats: no larger difference passes as rounding in float32


class NotCausalError(ParibusError):
    """Error raised if a log-probability depends on a token that it must not depend on.

    `nats` is the change of the log-probability.
    """

    def __init__(self, words: str, nats: float) -> None:
        super().__init__(words, code="own_code")
        self.nats = nats


class Reading(NamedTuple):
    """Result of a causality test that passed.

    Attributes:
        nats: largest difference of a log-probability; 0 if logits were bit-equal.
        positions: share of the positions in a window at which a change of tokens started.
    """

    nats: float
    positions: float


def tolerance(setting: Setting) -> float:
    """Return the largest log-probability difference that counts as rounding, in nats.

    This is 2 LARGE_LOGIT eps (n_layer + 1) sqrt(K), at most CEILING. Each block and the head end in
    a sum of at most K products, whose rounding errors add up like a random walk (Higham & Mary
    2019, SIAM J. Sci. Comput. 41(5)) and propagate through the residual stream; log-softmax rounds,
    too.
    """
    model = setting.model
    longest = max(model.mlp.ratio * model.d_model, setting.data.seq_len)
    eps = torch.finfo(torch.float32).eps
    return min(2 * LARGE_LOGIT * eps * (model.n_layer + 1) * math.sqrt(longest), CEILING)


def require_causal(where: str, model: GPT, setting: Setting, dataset: Dataset) -> Reading:
    """Check that a model is causal on held-out windows, with and without a key-value cache.

    `where` names the model in error messages. Large weights, as after a large learning rate,
    amplify float32 rounding, so a model that fails is tested again in float64 if possible. Raises
    NotCausalError if the model is not causal.
    """
    seq_len, device = setting.data.seq_len, next(model.parameters()).device
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
    positions are drawn without replacement. Global generators have a different seed in each call of
    `read`, so random predictions fail, too.

    Args:
        read: maps token ids [B, T] to logits [B, T, V].
        tokens_BT: token ids to change.
        setting: setting of the model.
        vocab_size: number of token ids, V.
        where: name of the model in error messages.

    Raises NotCausalError with the first position that differs.
    """
    (B, T), allowed, seen = tokens_BT.shape, tolerance(setting), 0.0
    rng = stream(0, "causality", "evaluation")
    n_places = max(2 * B, LEAST_PLACES)
    places = np.append(rng.permutation(np.arange(1, T - 1))[: n_places - 1], T - 1)
    rounds = [("other rows", np.where(np.arange(B) == row, T, 0)) for row in {0, B - 1}]
    rounds += [("later tokens", kept_B) for kept_B in np.resize(places, (-(-len(places) // B), B))]
    with seeded(0):
        base = read(tokens_BT)
    for number, (cause, kept_B) in enumerate(rounds if min(vocab_size, T) > 1 else ()):
        steps = rng.integers(1, vocab_size, size=(B, T)) * (np.arange(T) >= kept_B[:, None])
        changed_BT = (tokens_BT + torch.from_numpy(steps).to(tokens_BT.device)) % vocab_size
        with seeded(1 + number):
            logits = read(changed_BT)
        for row, kept in enumerate(kept_B.tolist()):
            difference_T = differences(base[row, :kept], logits[row, :kept])
            seen = max(seen, *difference_T.tolist(), 0.0)
            if seen > allowed:
                raise NotCausalError(
                    f"{where}{_named_modules(setting)} is not causal: at position t = "
                    f"{int((difference_T > allowed).nonzero()[0])}, in evaluation mode, "
                    f"log-probabilities change by {seen:.3g} nats (rounding explains "
                    f"{allowed:.1g}), because {CAUSES[cause]}",
                    seen,
                )
    return Reading(seen, min(len(places) / max(T - 1, 1), 1.0))


@torch.no_grad()
def _require_same_with_cache(where: str, model: GPT, setting: Setting, tokens_BT: Tensor) -> None:
    """Raise NotCausalError if logits with a key-value cache differ from those without."""
    T = tokens_BT.shape[1]
    where = f"{where}{_named_modules(setting)}"
    advice = (
        "a part with cached = True must accept the cache as an argument "
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
            f"{largest:.3g} nats, so decoding would be wrong; correct the part with cached = True, "
            "or remove cached = True",
            largest,
        )


def differences(ours_TV: Tensor, theirs_TV: Tensor) -> Tensor:
    """Return the largest log-probability difference at each position, [T], in nats.

    Below -NEAR, differences are relative to the log-probability, because a masking logit of -1e9
    rounds by 64. Two NaN or two equal infinities count as equal.
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


def _named_modules(setting: Setting) -> str:
    """Return the custom modules in parentheses, for messages, or "" if no module is custom."""
    named = [f"model.modules.{s} = '{path}'" for s, path in setting.model.modules.named.items()]
    return f" ({', '.join(named)})" if named else ""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and PyTorch, and restore them on exit."""
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
