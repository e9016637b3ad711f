"""Adafactor (Shazeer & Stern 2018), as torch.optim.Adafactor computes it.

It keeps only the row and column means of a matrix's second moment. The size of a step is the
learning rate times the root mean square of the parameter, so rates are larger than AdamW's: 1e-2
is common. The rate is capped at 1 / sqrt(step).
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field

from paribus.engine.training.optimizers import Shape, Update, like_parameter, optimizer
from paribus.study.choices import Options

EPS = torch.finfo(torch.float32).eps


class AdafactorOptions(Options):
    """The second moment decays by 1 - t^beta2_decay; `least_scale` bounds the root mean square of a
    parameter from below, and `clip` that of a step from above."""

    beta2_decay: Annotated[float, Field(lt=0)] = -0.8
    least_scale: Annotated[float, Field(gt=0)] = 1e-3
    clip: Annotated[float, Field(gt=0)] = 1.0


def _rows(shape: Shape, options: Any) -> Shape | None:
    return shape[:-1] if len(shape) > 1 else None


def _columns(shape: Shape, options: Any) -> Shape | None:
    return (*shape[:-2], shape[-1]) if len(shape) > 1 else None


def _vector(shape: Shape, options: Any) -> Shape | None:
    return None if len(shape) > 1 else like_parameter(shape, options)


@optimizer(
    "adafactor",
    slots={"row_square": _rows, "column_square": _columns, "square": _vector},
    options=AdafactorOptions,
    decay="own",
    whole_parameters=True,
    source="Shazeer & Stern 2018",
)
def adafactor(update: Update) -> None:
    """Write weights -= max(rms(w), e) min(rate, t^-1/2) u / max(1, rms(u) / clip), u = g / sqrt(v),
    v the outer product of the means of rows and columns over the mean of all."""
    options, g, slots = update.options, update.gradients, update.slots
    axes = tuple(range(2, g.ndim))  # of a parameter
    count = (update.t + 1).to(torch.float32)
    new = count**options.beta2_decay
    rates = update.rates.minimum(count**-0.5)
    scale = _rms(update.weights, axes).clamp_(min=options.least_scale)
    if isinstance(update.decay, torch.Tensor):
        update.weights.mul_(1 - update.rates * update.decay)
    if g.ndim > 3:
        rows, columns = slots["row_square"], slots["column_square"]
        share = new.squeeze(-1) if new.ndim else new
        rows.lerp_(g.square().mean(dim=-1), share)
        columns.lerp_(g.square().mean(dim=-2), share)
        mean = rows.mean(dim=-1, keepdim=True).clamp_(min=EPS)
        square = (rows / mean)[..., :, None] * columns[..., None, :]
    else:
        square = slots["square"].lerp_(g.square(), new).clone()
    step = square.clamp_(min=EPS**2).rsqrt_().mul_(g)
    length = (_rms(step, axes) / options.clip).clamp_(min=1.0)
    # A diverged replica does not move, whether its numbers are finite or not.
    factor = torch.where(update.rates > 0, scale * rates / length, 0.0)
    update.weights.sub_(step.mul_(factor))


def _rms(x: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """Return the root mean square of each parameter, keeping the axes of x."""
    return x.square().mean(dim=axes, keepdim=True).sqrt_() if axes else x.abs()
