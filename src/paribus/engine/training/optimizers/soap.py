"""SOAP (Vyas et al. 2024, Improving and stabilizing Shampoo using Adam).

SOAP runs AdamW in the eigenbasis of Shampoo's preconditioner. It trains matrices; AdamW trains
gains and biases. The first gradient initializes the basis, and the first step applies weight decay
only. For a dimension of 1,000, the basis takes gigaflops every `every` steps and the memory of two
1,000 x 1,000 matrices.

Axes: R replicas, K matrices with one shape [n, m].
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.training.optimizers import (
    Shape,
    Slots,
    Update,
    like_parameter,
    optimizer,
)
from paribus.engine.training.optimizers.adamw import Beta, correction
from paribus.study.choices import Options


class SOAPOptions(Options):
    """Options of SOAP.

    Attributes:
        betas: Decay rates of the two moments; the second also applies to the preconditioner.
        eps: Term added to the denominator.
        every: Number of steps between updates of the basis.
        largest_side: Largest matrix dimension that is preconditioned. The paper uses 10,000; the
            default is smaller, to exclude vocabulary dimensions.
    """

    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.95, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    every: Annotated[int, Field(ge=1)] = 10
    largest_side: Annotated[int, Field(ge=1)] = 2048


def _left(shape: Shape, options: Any) -> Shape | None:
    return (shape[0], shape[0]) if shape[0] <= options.largest_side else None


def _right(shape: Shape, options: Any) -> Shape | None:
    return (shape[1], shape[1]) if shape[1] <= options.largest_side else None


def keep_basis(slots: Slots, options: Any, t: int) -> None:
    """Initialize the eigenbases at step 0, and update them by power iteration and QR later."""
    if t % options.every:
        return
    square = slots["exp_avg_sq"]
    for side in ("left", "right"):
        if f"{side}_gram" not in slots:
            continue
        gram, basis = (slots[f"{side}_{kind}"] for kind in ("gram", "basis"))
        finite = gram.nan_to_num()  # LAPACK rejects the NaN that a diverged replica may have
        if t == 0:
            basis.copy_(torch.linalg.eigh(finite)[1].flip(-1))
            continue
        rotated = finite @ basis.nan_to_num()
        order = (basis * rotated).sum(dim=-2).argsort(dim=-1, descending=True)
        columns = order[..., None, :]
        moved = order[..., :, None] if side == "left" else columns
        square.copy_(square.gather(-2 if side == "left" else -1, moved.expand_as(square)))
        basis.copy_(torch.linalg.qr(rotated.gather(-1, columns.expand_as(rotated)))[0])


@optimizer(
    "soap",
    slots={
        "exp_avg": like_parameter,
        "exp_avg_sq": like_parameter,
        "left_gram": _left,
        "right_gram": _right,
        "left_basis": _left,
        "right_basis": _right,
    },
    options=SOAPOptions,
    whole_parameters=True,
    takes=lambda shape, use: len(shape) == 2,
    afterwards=keep_basis,
)
def soap(update: Update) -> None:
    """Perform one AdamW step in the eigenbasis of the preconditioner.

    Sets weights -= rate Q [(Q' m P / c1) / (sqrt(v / c2) + eps)] P', where m is the running mean of
    gradients g, v is the running mean of (Q' g P)^2, c1 and c2 are bias corrections, and Q and P
    are the bases of rows and columns.
    """
    options, gradients, slots = update.options, update.gradients, update.slots
    (beta1, beta2), t = options.betas, update.t
    begun = (t > 0).to(torch.float32)  # the first step has no basis
    mean, square = slots["exp_avg"], slots["exp_avg_sq"]
    mean.lerp_(gradients, (1 - beta1) * begun)
    square.lerp_(_rotated(gradients, slots).square_(), (1 - beta2) * begun)
    count = (t - 1).clamp(min=0)
    rates = update.rates * (correction(beta2, count).sqrt() / correction(beta1, count))
    step = _rotated(mean, slots) / (square.sqrt() + options.eps)
    update.weights.sub_(_rotated(step, slots, back=True) * rates)
    if "left_gram" in slots:
        slots["left_gram"].lerp_(gradients @ gradients.mT, 1 - beta2)
    if "right_gram" in slots:
        slots["right_gram"].lerp_(gradients.mT @ gradients, 1 - beta2)


def _rotated(x: Tensor, slots: Slots, *, back: bool = False) -> Tensor:
    """Rotate x into the eigenbasis (Q' x P), or out of it (Q x P') if `back`."""
    if "left_basis" in slots:
        left = slots["left_basis"]
        x = (left if back else left.mT) @ x
    if "right_basis" in slots:
        right = slots["right_basis"]
        x = x @ (right.mT if back else right)
    return x if "left_basis" in slots or "right_basis" in slots else x.clone()
