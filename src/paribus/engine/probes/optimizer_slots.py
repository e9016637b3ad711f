"""What the optimizer keeps, by parameter group: AdamW's moments, a momentum, or whatever it is.

Quantiles are over an even sample of at most SAMPLE parameters of a group; means and shares are over
all of them. Moments are divided by the optimizer's bias correction, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from paribus.drawing import Drawing
from paribus.engine.probes import StepView, probe
from paribus.engine.probes.reduce import GROUPS, QUANTILES, absent, group_of, quantiles
from paribus.engine.rows import Rows

SAMPLE = 16_384
STATISTICS = ("mean", *QUANTILES)
SQUARE = "exp_avg_sq"


@probe(
    "optimizer_slots",
    unit="that of the slot",
    source="Kingma & Ba 2015; that of the optimizer",
    parts=GROUPS,
    statistics=STATISTICS,
    every=25,
    by_slot=True,
    drawings=(
        Drawing("exp_avg_sq {}/mean", "panels", "AdamW's second moment", "mean v (gradient²)"),
        Drawing(
            "momentum_buffer {}/mean",
            "panels",
            "Momentum of the optimizer",
            "mean |b| (gradient)",
        ),
    ),
)
def optimizer_slots(step: StepView) -> Tensor:
    """[R, slots x G, S] of magnitudes: the sign says nothing over many parameters."""
    of_each = [_statistics(rows, step.corrections[slot]) for slot, rows in step.slots.items()]
    return torch.cat([absent(step.weights, 0, len(STATISTICS)), *of_each], dim=1)


@probe(
    "below_eps",
    unit="share",
    source="Kingma & Ba 2015, Adam",
    label="share of steps that eps decides",
    parts=GROUPS,
    every=25,
)
def below_eps(step: StepView) -> Tensor:
    """[R, G] share of parameters whose second moment is below eps^2: eps decides their step."""
    if SQUARE not in step.slots:
        return absent(step.weights, len(GROUPS))
    limit = step.setting.training.optimizer.eps**2
    return _mean(
        step.slots[SQUARE],
        step.corrections[SQUARE],
        lambda square, correction: (square < limit * correction).float(),
    )


def _pieces(rows: Rows, corrections: Mapping[str, float]) -> Iterator[list[tuple[Tensor, float]]]:
    """Of every group in GROUPS its numbers, [R, n] each, and what they are divided by."""
    wanted: dict[str, dict[float, list[str]]] = {group: {} for group in GROUPS}
    for name in rows:
        wanted[group_of(name)].setdefault(corrections.get(name, 1.0), []).append(name)
    for of_group in wanted.values():
        yield [(piece, c) for c, names in of_group.items() for piece in rows.pieces(names)]


def _statistics(rows: Rows, corrections: Mapping[str, float]) -> Tensor:
    """[R, G, 1 + Q] mean and quantiles of magnitudes."""
    sampled = []
    for pieces in _pieces(rows, corrections):
        if not pieces:
            sampled.append(absent(rows, len(QUANTILES)))
            continue
        # An odd stride meets every column of a matrix whose width is a power of two.
        stride = sum(piece.shape[1] for piece, _ in pieces) // SAMPLE | 1
        even = torch.cat([piece[:, ::stride].abs() / c for piece, c in pieces], dim=1)
        sampled.append(quantiles(even))
    mean_RG1 = _mean(rows, corrections, lambda x, c: x.abs() / c)[..., None]
    return torch.cat([mean_RG1, torch.stack(sampled, dim=1)], dim=2)


def _mean(
    rows: Rows, corrections: Mapping[str, float], of: Callable[[Tensor, float], Tensor]
) -> Tensor:
    """[R, G] the mean of `of(numbers, correction)` over each group's numbers."""
    columns = []
    for pieces in _pieces(rows, corrections):
        if not pieces:
            columns.append(absent(rows))
            continue
        each = [of(piece, correction).sum(dim=1) for piece, correction in pieces]
        size = sum(piece.shape[1] for piece, _ in pieces)
        columns.append(torch.stack(each).sum(dim=0) / size)
    return torch.stack(columns, dim=1)
