"""Per-token predictions of a model on held-out text, computed chunk by chunk.

Every token of the text except the first is predicted exactly once, in non-overlapping windows (the
last one may be shorter). Logits are kept only for a block that fits into a core's cache, and
per-token values only for a chunk of CHUNK_TOKENS, so memory does not grow with the text.

Axes: W windows in a batch, T time, N tokens in a chunk, V vocabulary, K temperatures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from paribus.engine.data import Tokens
from paribus.errors import ParibusError

Precision = Literal["float32", "bfloat16"]

# Of a batch: what keeps activations near a core, or an accelerator busy. Larger activations are
# given back to the system after each use, and every page of them is asked for again. To fill an
# accelerator a batch of one model does what replicas side by side would do, and in larger products.
CPU_BATCH_TOKENS, ACCELERATOR_BATCH_TOKENS = 2**10, 2**15
BATCH_LOGITS = 2**28  # at most, unless one window has more: 1 GiB of float32
# Logits worked on at once: what a core's cache holds, and what keeps an accelerator busy.
CPU_LOGITS, ACCELERATOR_LOGITS = 2**17, 2**24
CHUNK_TOKENS = 2**16  # after so many, measures add up what was predicted

# Of more tokens, some at even distances are predicted at all temperatures: a share of a percent is
# no news there.
SWEEP_TOKENS = 2**14
TEMPERATURES = (0.5, 4 / 6, 0.8, 1.0, 4 / 3, 2.0)


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for a chunk of text, one per token, in text order.

    Attributes:
        seq_len: number of tokens in a window.
        start: 0-based index of the chunk's first prediction in the text.
        loss_nats: [N] float32, -log p of the actual token.
        correct: [N] bool, whether the actual token was the most probable one (the first one in case
            of ties; False if the loss is not finite).
        confidence: [N] float32, highest probability.
        brier: [N] float32, sum_k (p_k - y_k)^2 over the vocabulary, where y is the one-hot token.
        token: [N] id of the actual token.
        token_class: [N] class of the token, as an index into `engine.data.TOKEN_CLASSES`.
        characters, n_bytes: [N] number of characters and of UTF-8 bytes in the token.
        swept: [N] bool, whether the token was evaluated at all temperatures.
        losses_at, confidences_at: [K, swept tokens] float32, loss and confidence at each softmax
            temperature T in `TEMPERATURES`, from logits / T.
    """

    seq_len: int
    start: int
    loss_nats: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    brier: np.ndarray
    token: np.ndarray
    token_class: np.ndarray
    characters: np.ndarray
    n_bytes: np.ndarray
    swept: np.ndarray
    losses_at: np.ndarray
    confidences_at: np.ndarray

    def __len__(self) -> int:
        return len(self.loss_nats)

    @property
    def position(self) -> np.ndarray:
        """0-based index p of each prediction in its window, [N], with a context of p + 1 tokens."""
        return (self.start + np.arange(len(self))) % self.seq_len


def predict(
    model: nn.Module,
    tokens: Tokens,
    seq_len: int,
    of_token: Mapping[str, np.ndarray],
    precision: Precision = "float32",
) -> Generator[Predictions, None, None]:
    """Yield the predictions of `model` for tokens[1:], with contexts of up to `seq_len` tokens.

    After the last chunk, or when the generator is closed, the training mode of each module and
    PyTorch's global generators are restored.

    Args:
        model: maps token ids [W, T] to logits [W, T, V].
        tokens: [N + 1] token ids.
        seq_len: maximum context length, in tokens.
        of_token: arrays `token_class`, `characters` and `n_bytes`, [V] each, indexed by token id.
        precision: precision of matrix products; everything after the logits uses float32.

    Raises ParibusError if there are fewer than two tokens.
    """
    if len(tokens) < 2:
        raise ParibusError(
            f"the held-out text has {len(tokens)} tokens, but evaluation needs at least 2; use a "
            "longer text",
            code="too_few",
        )
    device, start, every = next(model.parameters()).device, 0, -(-(len(tokens) - 1) // SWEEP_TOKENS)
    windows = windows_per_batch(seq_len, len(of_token["token_class"]), device)
    batches = text_batches(tokens, seq_len, windows)
    with evaluating(model):
        while group := list(islice(batches, -(-CHUNK_TOKENS // (seq_len * windows)))):
            parts, place = [], start
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                for inputs_WT, targets_WT in group:
                    swept_N = np.arange(place, place + targets_WT.size) % every == 0
                    parts.append(_scores(model, inputs_WT, targets_WT, swept_N))
                    place += targets_WT.size
            columns = {
                name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]
            }
            columns |= {name: values_V[columns["token"]] for name, values_V in of_token.items()}
            for column in columns.values():
                column.setflags(write=False)  # measures share them: none may write to them
            yield Predictions(seq_len, start, **columns)
            start = place


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode and disable gradients inside the context.

    On exit, the training mode of each module and PyTorch's global generators are restored.
    """
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    try:
        model.eval()
        with torch.no_grad(), torch.random.fork_rng(devices):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def windows_per_batch(seq_len: int, vocab_size: int, device: torch.device) -> int:
    """Return the number of windows per evaluation batch on `device`."""
    wanted = CPU_BATCH_TOKENS if device.type == "cpu" else ACCELERATOR_BATCH_TOKENS
    return max(min(BATCH_LOGITS // (seq_len * vocab_size), wanted // seq_len), 1)


def text_batches(
    tokens: Tokens, seq_len: int, windows: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches (inputs, targets), [W, T] int64 each, which cover every target exactly once."""
    n = len(tokens) - 1
    n_full = n // seq_len * seq_len
    step = seq_len * windows
    for start in range(0, n_full, step):
        ids = tokens[start : min(start + step, n_full) + 1].astype(np.int64)
        yield ids[:-1].reshape(-1, seq_len), ids[1:].reshape(-1, seq_len)
    if n_full < n:
        ids = tokens[n_full : n + 1].astype(np.int64)
        yield ids[None, :-1], ids[None, 1:]


def _scores(
    model: nn.Module, inputs_WT: np.ndarray, targets_WT: np.ndarray, swept_N: np.ndarray
) -> dict[str, np.ndarray]:
    """Compute the columns of `Predictions` for a batch of windows, keyed by column name."""
    device = next(model.parameters()).device
    logits_NV = model(torch.from_numpy(inputs_WT).to(device)).flatten(0, 1)
    targets_N = torch.from_numpy(targets_WT).to(device).flatten()
    size = CPU_LOGITS if device.type == "cpu" else ACCELERATOR_LOGITS
    rows = max(1, size // logits_NV.shape[1])
    blocks = [x_N.split(rows) for x_N in (logits_NV, targets_N, torch.from_numpy(swept_N))]
    parts = []
    with torch.autocast(device.type, enabled=False):
        for logits, targets, swept in zip(*blocks, strict=True):
            logits, chosen = logits.float(), swept.nonzero()[:, 0].to(device)
            log_p, loss, confidence = _log_probabilities(logits, targets)
            hits = (log_p.argmax(dim=-1) == targets) & loss.isfinite()  # NaN is no hit
            squares = log_p.exp().square_().sum(dim=-1)
            # Rounding may take a certain and right prediction below zero.
            brier = (squares - 2 * (-loss).exp() + 1).clamp(min=0)
            some = logits[chosen], targets[chosen]
            swept = [_log_probabilities(some[0] / T, some[1])[1:] for T in TEMPERATURES]
            losses, confidences = (torch.stack(at) for at in zip(*swept, strict=True))
            parts.append((hits, loss, confidence, brier, losses, confidences))
    names = ("correct", "loss_nats", "confidence", "brier", "losses_at", "confidences_at")
    joined = (torch.cat(part, dim=-1).cpu().numpy() for part in zip(*parts, strict=True))
    columns = dict(zip(names, joined, strict=True))
    return columns | {"token": targets_WT.ravel(), "swept": swept_N}


def _log_probabilities(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities [N, V], losses of the targets [N], and confidences [N]."""
    log_p_NV = logits_NV.log_softmax(dim=-1)
    loss_N = -log_p_NV.gather(-1, targets_N[:, None])[:, 0]
    return log_p_NV, loss_N, log_p_NV.amax(dim=-1).exp()
