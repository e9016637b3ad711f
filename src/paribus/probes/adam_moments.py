"""Adam's moments by parameter group (Kingma & Ba 2015), with bias correction.

Quantiles are over an even sample of at most SAMPLE parameters of a group; means and shares are over
all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paribus.model import Rows
from paribus.probes import StepView, probe
from paribus.probes.reduce import GROUPS, QUANTILES, absent, groups, quantiles

SAMPLE = 16_384
STATISTICS = ("mean", *QUANTILES)
SOURCE = "Kingma & Ba 2015, Adam"


@probe(
    "adam_first_moment",
    unit="gradient",
    source=SOURCE,
    parts=GROUPS,
    statistics=STATISTICS,
    every=25,
)
def adam_first_moment(step: StepView) -> Tensor:
    """[R, G, S] of |m| / (1 - beta1^(t + 1)): its sign says nothing over many parameters."""
    correction = 1 - step.setting.training.optimizer.betas[0] ** (step.t + 1)
    return _statistics(step.mean).div(correction)


@probe(
    "adam_second_moment",
    unit="gradient^2",
    source=SOURCE,
    parts=GROUPS,
    statistics=STATISTICS,
    every=25,
)
def adam_second_moment(step: StepView) -> Tensor:
    """[R, G, S] of v / (1 - beta2^(t + 1))."""
    return _statistics(step.square).div(_second_correction(step))


@probe("adam_below_eps", unit="share", source=SOURCE, parts=GROUPS, every=25)
def adam_below_eps(step: StepView) -> Tensor:
    """[R, G] share of parameters whose second moment is below eps^2: eps decides their step."""
    limit = step.setting.training.optimizer.eps**2 * _second_correction(step)
    return _mean(step.square, lambda square: (square < limit).float())


def _second_correction(step: StepView) -> float:
    return 1 - step.setting.training.optimizer.betas[1] ** (step.t + 1)


def _statistics(moments: Rows) -> Tensor:
    """[R, G, 1 + Q] mean and quantiles of magnitudes."""
    sampled = []
    for pieces in groups(moments):
        if not pieces:
            sampled.append(absent(moments, len(QUANTILES)))
            continue
        # An odd stride meets every column of a matrix whose width is a power of two.
        stride = sum(piece.shape[1] for piece in pieces) // SAMPLE | 1
        even = torch.cat([piece[:, ::stride] for piece in pieces], dim=1)
        sampled.append(quantiles(even.abs()))
    mean_RG1 = _mean(moments, torch.abs)[..., None]
    return torch.cat([mean_RG1, torch.stack(sampled, dim=1)], dim=2)


def _mean(moments: Rows, of: Callable[[Tensor], Tensor]) -> Tensor:
    """[R, G] the mean of `of(number)` over each group's numbers."""
    columns = []
    for pieces in groups(moments):
        if not pieces:
            columns.append(absent(moments))
            continue
        each = [of(piece).sum(dim=1) for piece in pieces]
        size = sum(piece.shape[1] for piece in pieces)
        columns.append(torch.stack(each).sum(dim=0) / size)
    return torch.stack(columns, dim=1)
