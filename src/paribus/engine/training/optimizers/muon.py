"""Muon: orthogonalized momentum (Jordan et al. 2024), as in torch.optim.Muon.

Muon trains the matrices between the embedding and the head; AdamW trains embeddings, head, biases
and gains. With `adjust_lr = "match_rms_adamw"` (Liu et al. 2025, Muon is scalable for LLM
training), steps are as large as AdamW's, so both can share a learning rate. With "original", set a
separate learning rate for the other parameters in a group.

Axes: R replicas, K matrices with one shape [n, m].
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.model import ParameterUse
from paribus.engine.training.optimizers import Update, optimizer
from paribus.engine.training.optimizers.adamw import Beta
from paribus.study.choices import Options

# The quintic with the largest slope at zero: singular values end between 0.7 and 1.2.
A, B, C = 3.4445, -4.7750, 2.0315
EPS = 1e-7
RMS_OF_ADAMW = 0.2


class MuonOptions(Options):
    """Options of Muon.

    Attributes:
        momentum: Nesterov momentum coefficient.
        ns_steps: Number of Newton-Schulz iterations.
        adjust_lr: Rule that scales a step according to the matrix shape.
    """

    momentum: Beta = 0.95
    ns_steps: Annotated[int, Field(ge=1, lt=100)] = 5
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw"


def is_hidden_matrix(shape: tuple[int, ...], use: ParameterUse) -> bool:
    """Return whether a parameter is a matrix outside the embedding and the head."""
    return len(shape) == 2 and not (use.table or use.head)


@optimizer(
    "muon",
    slots=("momentum_buffer",),
    options=MuonOptions,
    whole_parameters=True,
    takes=is_hidden_matrix,
)
def muon(update: Update) -> None:
    """Perform one Muon step, with orthogonalized Nesterov momentum.

    Sets weights -= rate ratio NS(g + momentum (b - g)), where NS is the Newton-Schulz iteration, b
    is the running mean of gradients g, and ratio is set by `adjust_lr`.
    """
    options, gradients, momentum = update.options, update.gradients, update.options.momentum
    buffer = update.slots["momentum_buffer"].lerp_(gradients, 1 - momentum)
    direction = gradients.lerp(buffer, momentum).bfloat16()
    orthogonal = orthogonalised(direction, options.ns_steps).to(update.weights.dtype)
    n, m = gradients.shape[-2:]
    if options.adjust_lr == "original":
        ratio = math.sqrt(max(1, n / m))
    else:
        ratio = RMS_OF_ADAMW * math.sqrt(max(n, m))
    update.weights.sub_(orthogonal * (update.rates * ratio))


def orthogonalised(matrices: Tensor, steps: int) -> Tensor:
    """Orthogonalize matrices [..., n, m] approximately, with Newton-Schulz iterations.

    All singular values become close to 1.
    """
    *lead, n, m = matrices.shape
    x = matrices.mT if n > m else matrices
    x = x.flatten(0, -3)
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=EPS)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    x = x.unflatten(0, lead)
    return x.mT if n > m else x
