"""Muon (Jordan et al. 2024): orthogonalized momentum, as torch.optim.Muon computes it.

It trains matrices between the embedding and the head; AdamW trains embeddings, the head, biases and
gains. With `match_rms_adamw` (Liu et al. 2025, Muon is scalable for LLM training) a step is as
large as AdamW's, so that both can share a learning rate; with `original` it is not, and a group can
set another rate for the rest.

Axes: R replicas, K matrices of one shape [n, m].
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
    """Nesterov momentum, steps of the Newton-Schulz iteration, and the scale of a step."""

    momentum: Beta = 0.95
    ns_steps: Annotated[int, Field(ge=1, lt=100)] = 5
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw"


def is_hidden_matrix(shape: tuple[int, ...], use: ParameterUse) -> bool:
    """Return True for a matrix that maps hidden states to hidden states."""
    return len(shape) == 2 and not (use.table or use.head)


@optimizer(
    "muon",
    slots=("momentum_buffer",),
    options=MuonOptions,
    whole_parameters=True,
    takes=is_hidden_matrix,
)
def muon(update: Update) -> None:
    """Write weights -= rate ratio NS(g + momentum (b - g)), b the running mean of gradients."""
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
    """Move all singular values of [..., n, m] close to one by the Newton-Schulz iteration."""
    *lead, n, m = matrices.shape
    x = matrices.mT if n > m else matrices
    x = x.flatten(0, -3)
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=EPS)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    x = x.unflatten(0, lead)
    return x.mT if n > m else x
