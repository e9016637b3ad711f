"""Three ideas, two of which reach across layers by `shared`: study.toml beside it.

Axes: B batch, T time, D d_model, E experts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from paribus.extend import Dropout


class ValueResidual(nn.Module):
    """Attention whose values are mixed with those of the first block (Zhou et al. 2024)."""

    cached = True  # it can read a text piece by piece
    residual_projections = ("out",)

    def __init__(self, model):
        super().__init__()
        self.n_head, self.layer, self.is_first = model.n_head, model.layer, not model.layer
        self.qkv = nn.Linear(model.d_model, 3 * model.d_model, bias=model.bias)
        self.out = nn.Linear(model.d_model, model.d_model, bias=model.bias)
        if not self.is_first:
            self.mix = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x, cache=None, shared=None):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3 * self.n_head, -1).transpose(1, 2).chunk(3, dim=1)
        if self.is_first:
            shared["values"] = v
        else:
            v = v + self.mix.to(v.dtype) * (shared["values"] - v)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        S = k.shape[2]
        if S == T:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # T new positions after others
            seen = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
            y = F.scaled_dot_product_attention(q, k, v, seen)
        return self.out(y.transpose(1, 2).reshape(B, T, D))


class MixtureOfExperts(nn.Module):
    """Each token by `active` of E experts, with the load balancing loss of Switch (Fedus et al.
    2022).

    All experts are computed, and what a token does not choose counts nothing: no token is dropped
    and none sees what others choose, so that it is causal. Its FLOPs are those of all experts.
    """

    cached = True
    experts, active = 4, 1
    auxiliaries = ("balance",)
    residual_projections = ("down",)

    def __init__(self, model):
        super().__init__()
        E, width = self.experts, model.mlp.ratio * model.d_model
        self.has_bias = model.bias
        self.router = nn.Linear(model.d_model, E, bias=False)
        self.up = nn.Linear(model.d_model, E * width, bias=model.bias)
        self.down = nn.Linear(width, E * model.d_model, bias=False)
        if self.has_bias:
            self.down_bias = nn.Parameter(torch.zeros(E, model.d_model))

    def forward(self, x, shared):
        E = self.experts
        chances = self.router(x).float().softmax(dim=-1)  # [B, T, E]
        best = chances.topk(self.active, dim=-1)
        gates = torch.zeros_like(chances).scatter(-1, best.indices, best.values)
        load = (gates > 0).float().mean(dim=(0, 1)) / self.active
        shared.auxiliary("balance", E * (load * chances.mean(dim=(0, 1))).sum())
        inner = F.gelu(self.up(x)).unflatten(-1, (E, -1))  # [B, T, E, width]
        matrices = self.down.weight.unflatten(0, (E, -1))  # [E, D, width]
        y = torch.einsum(
            "bte,btew,edw->btd", gates.to(inner.dtype), inner, matrices.to(inner.dtype)
        )
        return y + gates.to(y.dtype) @ self.down_bias.to(y.dtype) if self.has_bias else y


class LayerDropout(nn.Module):
    """An MLP that a sequence skips with a chance of 0.1 while training (Fan et al. 2020). Which
    ones do follows from seed, step and place in the batch alone."""

    cached = True
    residual_projections = ("down",)

    def __init__(self, model):
        super().__init__()
        width = model.mlp.ratio * model.d_model
        self.up = nn.Linear(model.d_model, width, bias=model.bias)
        self.down = nn.Linear(width, model.d_model, bias=model.bias)
        self.drop = Dropout(0.1)

    def forward(self, x):
        kept = self.drop(torch.ones_like(x[:, :1, :1]))  # [B, 1, 1]
        return self.down(F.gelu(self.up(x))) * kept
