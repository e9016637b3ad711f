"""One pass of a model over held-out text, kept as a few numbers per predicted token.

Every token of the text but its first is predicted exactly once, in non-overlapping windows (the
last one may be shorter). Logits live for one batch; what stays is a row of narrow columns per token
and, for the sweep over softmax temperatures, sums. Every measure is computed from these, so that
one more costs no further pass.

Axes: W windows of a batch, T time, N tokens, V vocabulary, K temperatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from paribus.data import Tokens
from paribus.errors import ParibusError
from paribus.evaluation.bins import equal_width, tally

WINDOWS_PER_BATCH = 32
BATCH_LOGITS = 2**28  # at most, unless one window has more: 1 GiB of float32
# Logits worked on at once: what a core's cache holds, and what keeps an accelerator busy.
CPU_LOGITS, ACCELERATOR_LOGITS = 2**18, 2**24
# Symmetric about 1 and close to evenly spaced in their logarithm.
TEMPERATURES = (0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)
# At most so many tokens are predicted at all of them: a share of a percent is no news there.
SWEEP_TOKENS = 2**17
# exp(x / 2) is zero in float32 below this, and unlike -inf it may be multiplied by zero.
LOWEST_LOGIT = -1e4


@dataclass(frozen=True)
class TemperatureSweep:
    """What every temperature T of `TEMPERATURES` would give: logits / T in place of logits.

    Attributes:
        loss_sum_nats: [K] the summed loss.
        slope_sum: [K] its derivative with respect to the inverse temperature 1 / T.
        tallies: [K, 3, BINS] tokens, confidence and hits by bin of confidence (`bins.tally`).

    Of a text of more than SWEEP_TOKENS tokens, these are over windows at even distances.
    """

    loss_sum_nats: np.ndarray
    slope_sum: np.ndarray
    tallies: np.ndarray

    def __len__(self) -> int:
        """Tokens that the sums are over."""
        return int(self.tallies[0, 0].sum())


@dataclass(frozen=True)
class Predictions:
    """What a model predicted, token by token, in the order of the text.

    Attributes:
        seq_len: the length of a window.
        loss_nats: [N] float32, -log of the probability that the token had.
        correct: [N] bool, whether it was the most probable one (the first of several; NaN is none).
        confidence: [N] float32, the highest probability.
        brier: [N] float32, sum_k (p_k - y_k)^2 over the vocabulary, y the token in one-hot form.
        token_class: [N] int8, index into `paribus.data.TOKEN_CLASSES` of the predicted token.
        characters: [N] uint16, how many characters it stands for.
        sweep: sums at other temperatures.
    """

    seq_len: int
    loss_nats: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    brier: np.ndarray
    token_class: np.ndarray
    characters: np.ndarray
    sweep: TemperatureSweep

    def __len__(self) -> int:
        return len(self.loss_nats)

    @property
    def position(self) -> np.ndarray:
        """[N] the place in the window, from 0: position p is predicted from p + 1 tokens."""
        return np.arange(len(self)) % self.seq_len

    @property
    def window(self) -> np.ndarray:
        """[N] the window that the token was predicted in, from 0."""
        return np.arange(len(self)) // self.seq_len


def predict(
    model: nn.Module,
    tokens: Tokens,
    seq_len: int,
    *,
    token_classes: np.ndarray,
    characters: np.ndarray,
) -> Predictions:
    """Let `model` predict tokens[1:], with contexts of up to `seq_len`, in float32.

    `model` takes ids [W, T] and gives logits [W, T, V]; `tokens` are [N + 1] ids; `token_classes`
    and `characters`, both [V], are as in `Predictions`. The model's weights, the training mode of
    each of its modules and PyTorch's global generators are left as they were. Sums are accumulated
    in float64 and in a fixed order. Raises ParibusError where there is nothing to predict, and
    where the first batch, read again at the end, has other losses.
    """
    if len(tokens) < 2:
        raise ParibusError(
            f"{len(tokens)} held-out tokens leave nothing to predict; give a text of at least 2"
        )
    device = next(model.parameters()).device
    modes = {module: module.training for module in model.modules()}
    generators = [device] if device.type == "cuda" else []
    windows = windows_per_batch(seq_len, len(token_classes))
    scored: list[_Scored] = []
    # Every so many windows, so that the sweep is over at most SWEEP_TOKENS of a long text.
    stride, window = -(-(len(tokens) - 1) // SWEEP_TOKENS), 0
    try:
        model.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=generators):
            for inputs_WT, targets_WT in _batches(tokens, seq_len, windows):
                logits_WTV = model(torch.from_numpy(inputs_WT).to(device))
                targets = torch.from_numpy(targets_WT).to(device)
                swept_W = (window + np.arange(len(inputs_WT))) % stride == 0
                scored.append(_score(logits_WTV, targets, swept_W))
                window += len(inputs_WT)
            _require_same_again(model, tokens, seq_len, windows, stride, scored[0])
    finally:
        for module, mode in modes.items():
            module.training = mode
    columns = zip(*(batch.columns for batch in scored), strict=True)
    loss_nats, correct, confidence, brier = map(np.concatenate, columns)
    sums = zip(*(b.sums for b in scored if b.sums), strict=True)
    loss_sum, slope_sum, tallies = (np.sum(batches, axis=0) for batches in sums)
    predictions = Predictions(
        seq_len=seq_len,
        loss_nats=loss_nats,
        correct=correct,
        confidence=confidence,
        brier=brier,
        token_class=token_classes.astype(np.int8)[tokens[1:]],
        characters=characters.astype(np.uint16)[tokens[1:]],
        sweep=TemperatureSweep(loss_sum, slope_sum, tallies),
    )
    # Measures share them: none may write what the next one reads.
    for column in (*vars(predictions).values(), *vars(predictions.sweep).values()):
        if isinstance(column, np.ndarray):
            column.setflags(write=False)
    return predictions


def _require_same_again(
    model: nn.Module, tokens: Tokens, seq_len: int, windows: int, stride: int, first: _Scored
) -> None:
    """Raise ParibusError where the first batch has other losses after all that was read since."""
    device = next(model.parameters()).device
    inputs_WT, targets_WT = next(_batches(tokens, seq_len, windows))
    logits_WTV = model(torch.from_numpy(inputs_WT).to(device))
    targets = torch.from_numpy(targets_WT).to(device)
    swept_W = np.arange(len(inputs_WT)) % stride == 0
    again = _score(logits_WTV, targets, swept_W).columns[0]
    if not np.array_equal(first.columns[0], again, equal_nan=True):
        raise ParibusError(
            "the first held-out windows, read again after the others, have other losses: the model "
            "draws random numbers or keeps something between calls; neither may be in what is "
            "evaluated"
        )


def windows_per_batch(seq_len: int, vocab_size: int) -> int:
    """How many windows are read at once."""
    return min(max(BATCH_LOGITS // (seq_len * vocab_size), 1), WINDOWS_PER_BATCH)


class _Scored(NamedTuple):
    """A batch, reduced."""

    columns: tuple[np.ndarray, ...]  # loss_nats, correct, confidence, brier
    sums: tuple[np.ndarray, ...]  # as in TemperatureSweep; none where no window is swept


def _batches(tokens: Tokens, seq_len: int, windows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(inputs [W, T], targets [W, T]), int64, that predict tokens[1:] once each."""
    n = len(tokens) - 1
    whole = n // seq_len * seq_len
    step = seq_len * windows
    spans = [(start, min(start + step, whole), seq_len) for start in range(0, whole, step)]
    if whole < n:
        spans.append((whole, n, n - whole))
    for start, end, length in spans:
        ids = tokens[start : end + 1].astype(np.int64)
        yield ids[:-1].reshape(-1, length), ids[1:].reshape(-1, length)


def _score(logits_WTV: Tensor, targets_WT: Tensor, swept_W: np.ndarray) -> _Scored:
    """Reduce a batch: on its device by token, then on the host by sum."""
    T = targets_WT.shape[1]
    columns = [np.empty((len(swept_W), T), kind) for kind in ("f4", "?", "f4", "f4")]
    sums: tuple[np.ndarray, ...] = ()
    for is_swept in (True, False):
        chosen = np.flatnonzero(swept_W == is_swept)
        if not len(chosen):
            continue
        where = torch.from_numpy(chosen).to(logits_WTV.device)
        whole = len(chosen) == len(swept_W)
        logits = logits_WTV if whole else logits_WTV[where]
        targets = targets_WT if whole else targets_WT[where]
        found = _reduced(logits.flatten(0, 1), targets.flatten(), is_swept)
        for column, values in zip(columns, found[:4], strict=True):
            column[chosen] = values.reshape(-1, T)
        if is_swept:
            sums = _summed(found[1], *found[4:])
    return _Scored(tuple(column.ravel() for column in columns), sums)


def _summed(
    hits_N: np.ndarray, losses_KN: np.ndarray, slopes_KN: np.ndarray, confidences_KN: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The sums of a `TemperatureSweep`; on the host, since not every device has float64."""
    return (
        losses_KN.sum(axis=1, dtype=np.float64),
        slopes_KN.sum(axis=1, dtype=np.float64),
        np.stack([tally(equal_width(c), c, hits_N) for c in confidences_KN]),
    )


def _reduced(logits_NV: Tensor, targets_N: Tensor, is_swept: bool) -> list[np.ndarray]:
    """`_reduce`, a part at a time: what a core's cache holds."""
    size = CPU_LOGITS if logits_NV.device.type == "cpu" else ACCELERATOR_LOGITS
    rows = max(1, size // logits_NV.shape[1])
    parts = [
        _reduce(logits.float(), targets, is_swept)
        for logits, targets in zip(logits_NV.split(rows), targets_N.split(rows), strict=True)
    ]
    return [torch.cat(part, dim=-1).cpu().numpy() for part in zip(*parts, strict=True)]


def _reduce(logits_NV: Tensor, targets_N: Tensor, is_swept: bool) -> tuple[Tensor, ...]:
    """[N] losses, hits, confidences, Brier scores; swept, then [K, N] by temperature: losses,
    slopes, confidences.

    One softmax gives the first four. Weights at half and at twice a temperature are squares and
    roots of each other, so that the nine temperatures take four softmaxes.
    """
    top_N, guess_N = logits_NV.max(dim=-1)
    shifted_NV = logits_NV - top_N[:, None]
    target_N = shifted_NV.gather(-1, targets_N[:, None])[:, 0]
    shifted_NV.clamp_(min=LOWEST_LOGIT)
    hits_N = (guess_N == targets_N) & ~target_N.isnan()
    # The most probable token has weight 1, so that the sum is the inverse of its probability.
    weights_NV = shifted_NV.exp()
    sum_N = weights_NV.sum(dim=-1)
    found: dict[float, tuple[Tensor, ...]] = {}

    def note(temperature: float, weights_NV: Tensor) -> None:
        sum_N = weights_NV.sum(dim=-1)
        slope_N = torch.linalg.vecdot(weights_NV, shifted_NV) / sum_N - target_N
        found[temperature] = sum_N.log() - target_N / temperature, slope_N, 1 / sum_N

    if is_swept:
        note(1.0, weights_NV)
        note(2.0, weights_NV.sqrt())
    squares_NV = weights_NV.square_()
    squares_N = squares_NV.sum(dim=-1) / sum_N.square()
    # Rounding may take a certain and right prediction below zero.
    briers_N = (squares_N - 2 * target_N.exp() / sum_N + 1).clamp(min=0)
    plain = sum_N.log() - target_N, hits_N, 1 / sum_N, briers_N
    if not is_swept:
        return plain
    note(0.5, squares_NV)
    for temperature in TEMPERATURES:
        if temperature not in found and temperature / 2 in TEMPERATURES:
            torch.div(shifted_NV, temperature, out=weights_NV).exp_()
            note(temperature, weights_NV)
            note(temperature / 2, weights_NV.square_())
    by_temperature = zip(*(found[temperature] for temperature in TEMPERATURES), strict=True)
    return *plain, *map(torch.stack, by_temperature)
