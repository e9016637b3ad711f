"""Four ideas that reach across layers, heads and losses, by `shared`: study.toml beside it.

Axes: R replicas, B batch, T time, D d_model, E experts, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from paribus.extend import Dropout, Options, loss


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


class OneExpert(MixtureOfExperts):
    """The MLP: its only expert is always chosen."""

    experts = 1


class TwoHeads(nn.Module):
    """Logits of the next token, and while training those of the one after it, by a matrix before
    the same head (Gloeckle et al. 2024)."""

    cached = True

    def __init__(self, model):
        super().__init__()
        self.turn = nn.Linear(model.d_model, model.d_model, bias=False)

    def forward(self, x, tokens, shared):
        if self.training:
            shared.output("second", F.linear(x + self.turn(x), tokens))
        return F.linear(x, tokens)


class TwoHeadsOptions(Options):
    """How much the second head counts; 0 is the cross-entropy."""

    weight: float = 0.3


@loss("two_heads", options=TwoHeadsOptions)
def two_heads(logits, targets, options, shared):
    """Cross-entropy of both heads: the second one's target is one further on."""
    first = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    first = first.view(targets.shape)
    if not options.weight:
        return first
    ahead, further = shared.outputs["second"][..., :-1, :].float(), targets[..., 1:]
    second = F.cross_entropy(ahead.flatten(0, -2), further.flatten(), reduction="none")
    second = F.pad(second.view(further.shape), (0, 1))  # the last position has no such target
    T = targets.shape[-1]
    return first + options.weight * second * T / (T - 1)


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
