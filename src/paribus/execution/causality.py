"""An arm reads the past alone: shown in the dry run, and of every trained model before it counts.

What is compared, and what that cannot show, is in `paribus.evaluation.causality`. Here a model is
read in the ways that a trial reads it: as a stack trains it, and as it is evaluated.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np
import torch
from torch import Tensor

from paribus.data import Dataset, batch
from paribus.errors import ParibusError
from paribus.evaluation.causality import (
    ROUNDS,
    Leak,
    Read,
    find_leak,
    find_length_leak,
    rounding,
)
from paribus.evaluation.predictions import windows_per_batch
from paribus.execution.generators import seeded
from paribus.model import GPT, LOGITS, KeyValueCache, capture, initial_parameters
from paribus.streams import stream
from paribus.study import Setting
from paribus.training import Trainer

Tap = Callable[
    [Tensor], dict[str, Tensor]
]  # tokens [B, T] -> {module path: its output [B, T, ...]}

FEW_ROWS = 2  # where the number of rows does not matter
CACHED = 4  # tokens that are read one by one with a cache
OWN_NOISE = 0.1  # added to a parameter that its module draws itself, relative to its largest value


def require_causal_training(
    where: str, stack: Trainer, dataset: Dataset, *, gradients: bool, rounds: int = ROUNDS
) -> float:
    """Raise ParibusError where the logits of a step of `stack` follow what they must not.

    Rows are the batches of all its replicas: none may know of another. `where` is for the error.
    With `gradients` they are recorded, as in training; a trained stack is read without, as they
    take a step's memory, and what opens for them alone lowers no held-out loss.

    Returns the largest difference that was seen, relative to the largest logit: 0 is bit-equal.
    """
    setting, R = stack.setting, len(stack.seeds)
    size, seq_len = setting.training.batch_size, setting.data.seq_len
    order = dataset.windows
    windows = [batch(dataset.train, seed, stack.t, size, seq_len, order) for seed in stack.seeds]
    tokens_BT = torch.from_numpy(np.concatenate(windows)[:, :-1].copy()).to(stack.device)
    calls = count()

    def tap(
        tokens_BT: Tensor, paths: tuple[str, ...] = _sites(setting), *, mixed: bool
    ) -> dict[str, Tensor]:
        tokens_RBT = tokens_BT.reshape(R, -1, tokens_BT.shape[1])
        with seeded(next(calls)), torch.set_grad_enabled(gradients):
            logits_RBTV, outputs = stack.logits(tokens_RBT, paths, mixed=mixed)
        flat = {path: output.flatten(0, 1) for path, output in outputs.items()}
        return flat | {LOGITS: logits_RBTV.detach().flatten(0, 1)}

    def read(tokens_BT: Tensor, *, mixed: bool) -> Tensor:
        return tap(tokens_BT, (), mixed=mixed)[LOGITS]

    seen = 0.0
    for mixed in dict.fromkeys((False, setting.training.precision == "bfloat16")):
        # What rounds in float32 rounds more in bfloat16; what is exact there must be exact here.
        coarse = mixed and seen > 0
        allowed = rounding(setting, torch.bfloat16 if coarse else torch.float32)
        rng = stream(0, "causality", "training")
        leak, largest = find_leak(
            partial(read, mixed=mixed), tokens_BT, dataset.vocab_size, allowed, rng, rounds
        )
        if leak is not None:
            _refuse(where, "in training", setting, leak, partial(tap, mixed=mixed), allowed)
        seen = max(seen, largest)
    return seen


def require_causal_reading(
    where: str, model: GPT, setting: Setting, dataset: Dataset, rows: int | None = None
) -> float:
    """The same of a model as it is evaluated: on held-out windows, cut off, and with a cache.

    `rows` windows at once; by default as many as an evaluation reads.
    """
    seq_len, device = setting.data.seq_len, next(model.parameters()).device
    B = rows or max(windows_per_batch(seq_len, dataset.vocab_size), FEW_ROWS)
    windows = batch(dataset.validation, 0, 0, B, seq_len)
    tokens_BT = torch.from_numpy(windows[:, :-1].copy()).to(device)
    calls = count()

    def read(tokens_BT: Tensor) -> Tensor:
        with seeded(next(calls)), torch.no_grad():
            return model(tokens_BT)

    def tap(tokens_BT: Tensor) -> dict[str, Tensor]:
        with capture(model, _sites(setting)) as outputs:
            read(tokens_BT)
        return outputs

    was_training, allowed = model.training, rounding(setting)
    model.eval()
    try:
        rng = stream(0, "causality", "evaluation")
        leak, seen = find_leak(read, tokens_BT, dataset.vocab_size, allowed, rng)
        if leak is None:
            leak, _ = find_length_leak(read, tokens_BT[:FEW_ROWS], allowed)
        if leak is not None:
            _refuse(where, "in evaluation", setting, leak, tap, allowed)
        if model.can_cache and seq_len > CACHED:
            _require_same_with_cache(where, model, read, tokens_BT[:FEW_ROWS], allowed)
    finally:
        model.train(was_training)
    return seen


def opened(model: GPT, setting: Setting) -> Iterator[dict[str, np.ndarray]]:
    """Two sets of weights of which none is zero, each the other's mirror image about the start.

    At its start a path may lie behind a gain of zero, and show nothing. Parameters that a module
    draws or constructs itself stay near their start, where it knows that they make sense.
    """
    rng = stream(0, "causality", "weights")
    start = initial_parameters(model, setting, seed=0)
    noise = {
        name: rng.standard_normal(one.value.shape, dtype=np.float32) for name, one in start.items()
    }
    for sign in (1, -1):
        weights = {}
        for name, one in start.items():
            if one.std is None:
                size = OWN_NOISE * max(float(np.abs(one.value).max(initial=0)), 1.0)
                values = one.value + sign * size * noise[name]
            else:
                size = one.value.shape[-1] ** -0.5 if one.value.ndim >= 2 else 0.5
                values = sign * size * noise[name]
            weights[name] = np.asarray(values, np.float32)
        yield weights


def _require_same_with_cache(
    where: str, model: GPT, read: Read, tokens_BT: Tensor, allowed: float
) -> None:
    """Raise ParibusError where reading piece by piece gives other logits than reading at once."""
    whole, T = read(tokens_BT), tokens_BT.shape[1]
    cache = KeyValueCache(len(model.blocks), room=T)
    with torch.no_grad():
        pieces = tokens_BT.split([T - CACHED, *[1] * CACHED], dim=1)
        apart = torch.cat([model(piece, cache) for piece in pieces], dim=1)
    largest, scale = float((apart - whole).abs().max()), float(whole.abs().max())
    if largest > allowed * scale:
        raise ParibusError(
            f"{where}: read token by token with a cache, a logit differs by {largest:.3g} from "
            "the same text read at once; its decoding cannot be trusted"
        )


def _sites(setting: Setting) -> tuple[str, ...]:
    """Paths of all that may be replaced in a model, in the order of computation."""
    parts = ("attention_norm", "attention", "mlp_norm", "mlp")
    blocks = [f"blocks.{i}.{part}" for i in range(setting.model.n_layer) for part in parts]
    return ("embedding", *blocks, "final_norm")


def _refuse(where: str, when: str, setting: Setting, leak: Leak, tap: Tap, allowed: float) -> None:
    """Raise the ParibusError that says what leaks, where it begins and at which position."""
    outputs = tap(leak.tokens), tap(leak.changed)
    path = next((path for path in _sites(setting) if _differ(outputs, path, leak, allowed)), "")
    what = {
        "repetition": "the same tokens read again give other logits: it draws random numbers or "
        "keeps something between calls; for dropout take paribus.model.Dropout",
        "other rows": "its logits change with other rows of the batch; each row is a text of its "
        "own",
        "later tokens": "its logits change with tokens after it; a language model reads the past "
        "alone",
        "the length of the text": "its logits change when the text ends there; a language model "
        "reads the past alone",
    }[leak.cause]
    raise ParibusError(
        f"{where}{_named(setting, path)}: at position t = {leak.position}, {when}, {what} "
        f"(by {leak.difference:.3g}; rounding explains {allowed:.1g} of the largest logit)"
    )


def _named(setting: Setting, path: str) -> str:
    """The site at `path`, and what the arm put there."""
    if not path:
        return ""
    part = path.split(".")[-1]
    site = "block_norm" if part in ("attention_norm", "mlp_norm") else part
    own = setting.model.modules.named.get(site)
    return f", model.modules.{site} = '{own}' (at {path})" if own else f", at {path}"


def _differ(outputs: tuple[dict[str, Tensor], ...], path: str, leak: Leak, allowed: float) -> bool:
    """Whether the output of `path` differs in the leak's row, up to its position."""
    ours, theirs = (of[path][leak.row, : leak.position + 1].float() for of in outputs)
    return ours.shape != theirs.shape or not torch.allclose(
        ours, theirs, rtol=0, atol=allowed * float(ours.abs().max()), equal_nan=True
    )
