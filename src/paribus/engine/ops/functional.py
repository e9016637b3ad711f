"""The operations of a model: each is answered by a compiled kernel where one supports it, and else
by PyTorch, with the same numbers up to rounding.

Axes: B batch, H heads, T positions, S positions that are seen, K channels of a head, D and M
channels; of AdamW, R replicas of N numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.engine.ops.kernels import causal_attention, linear_maps, rowwise

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


def linear(x: Tensor, weight_MD: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """Return x [..., D] times the weight, plus the bias: [..., M]."""
    if linear_maps.supports(x, weight_MD, bias_M):
        return linear_maps.linear(x, weight_MD, bias_M)
    return F.linear(x, weight_MD, bias_M)


def residual(x: Tensor, more: Tensor) -> Tensor:
    """Return x + more, of one shape: a stream in float32, and what is added to it in any type."""
    if linear_maps.supports_residual(x, more):
        return linear_maps.residual(x, more)
    return x + more


def norm(
    x: Tensor,
    width: int,
    gain_D: Tensor | None,
    bias_D: Tensor | None,
    eps: float,
    *,
    centred: bool,
    cast_output: bool = False,
) -> Tensor:
    """Return LayerNorm of x [..., D]; where it is not `centred`, RMSNorm.

    cast_output: whether whoever reads it multiplies, so that it may come in the type that autocast
    multiplies in.
    """
    if x.shape[-1:] == (width,) and rowwise.supports_norm(x, gain_D, bias_D):
        return rowwise.norm(x, gain_D, bias_D, eps, centred=centred, cast_output=cast_output)
    if centred:
        return F.layer_norm(x, (width,), gain_D, bias_D, eps)
    return F.rms_norm(x, (width,), gain_D, eps)


def activation(kind: str, x: Tensor) -> Tensor:
    """Return one of `ACTIVATIONS` of every number of x."""
    if rowwise.supports_activation(x):
        return rowwise.activation(kind, x)
    return ACTIVATIONS[kind](x)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Return SiLU(gate) up."""
    if rowwise.supports_activation(gate, up):
        return rowwise.gated(gate, up)
    return F.silu(gate) * up


def self_attention(qkv_BTPK: Tensor) -> Tensor:
    """Return causal attention [B, T, H K] of a projection's queries, keys and values, P = 3 H."""
    B, T, P, K = qkv_BTPK.shape
    H = P // 3
    if causal_attention.supports_projection(qkv_BTPK, H):
        return causal_attention.self_attention(qkv_BTPK)
    q_BHTK, k_BHTK, v_BHTK = qkv_BTPK.transpose(1, 2).split((H, H, H), dim=1)
    y_BHTK = attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
    return y_BHTK.transpose(1, 2).reshape(B, T, H * K)


def attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, is_causal: bool) -> Tensor:
    """Return softmax(q k^T / sqrt(K)) v, [B, H, T, K]; causal, or over all S positions.

    Values may have another number of channels than queries and keys.
    """
    if is_causal and causal_attention.supports(q_BHTK, k_BHSK, v_BHSK):
        return causal_attention.causal_attention(q_BHTK, k_BHSK, v_BHSK)
    if any(torch._C._functorch.is_batchedtensor(x) for x in (q_BHTK, k_BHSK, v_BHSK)):
        return _MappedAttention.apply(q_BHTK, k_BHSK, v_BHSK, is_causal)  # type: ignore[no-any-return]
    return ordered_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)


class _MappedAttention(torch.autograd.Function):
    """Attention inside `torch.func.vmap`: one call over R x B sequences.

    PyTorch has no batching rule for its CPU kernel. Its rule for CUDA looks at `requires_grad` of
    the mapped tensors, which is False, and does not keep what the backward pass needs.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        raise NotImplementedError("only called on tensors that torch.func.vmap maps")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        *tensors, is_causal = args
        q, k, v = (
            (x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(
                0, 1
            )
            for x, dim in zip(tensors, in_dims, strict=False)
        )
        y = attention(q, k, v, is_causal=is_causal)
        return y.unflatten(0, (info.batch_size, -1)), 0


def ordered_attention(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """Return PyTorch's fused attention with gradients that are the same bits every time.

    On CUDA, flash attention accumulates the gradient of queries from blocks of keys as they finish,
    unless deterministic algorithms are required. A whole training step cannot require them, because
    a custom module may use a function that has no deterministic kernel. So they are required in
    the backward pass of attention alone.
    """
    if q.is_cpu and q.dtype == torch.bfloat16:
        # PyTorch's fused kernel for the CPU takes several times as long in bfloat16.
        with torch.autocast("cpu", enabled=False):
            q, k, v = q.float(), k.float(), v.float()
            return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    if q.is_cuda and (q.requires_grad or k.requires_grad or v.requires_grad):
        return in_order(q, k, v, is_causal=is_causal)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def in_order(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """Return the same on any device: nothing but attention's backward pass is between the two."""
    q, k, v = (_Wished.apply(x) for x in (q, k, v))
    return _Required.apply(F.scaled_dot_product_attention(q, k, v, is_causal=is_causal))


class _Required(torch.autograd.Function):
    """The identity; its backward pass requires deterministic algorithms."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        torch.use_deterministic_algorithms(True)
        return grad


class _Wished(torch.autograd.Function):
    """The identity; after its backward pass they are taken where there are any."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        torch.use_deterministic_algorithms(True, warn_only=True)
        return grad


def adamw_step(
    rows_RN: tuple[Tensor, Tensor, Tensor, Tensor],
    rates_R1: Tensor,
    t: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Write weights -= rate (m / c1) / (sqrt(v / c2) + eps) in place, as torch.optim.AdamW.

    rows_RN: weights, gradients, first moments and second moments; all but gradients are written.
    t: int64, the step from 0, [] or [R, 1]. rates_R1: float32.
    """
    if rowwise.supports_adamw(*rows_RN):
        rowwise.adamw_step(rows_RN, rates_R1, t, betas, eps)
        return
    step = rates_R1 / correction(betas[0], t)
    weights, *others = rows_RN
    weights.sub_(_adam_direction(others, t, betas, eps).mul_(step))


def adam_moments(
    rows: tuple[Tensor, Tensor, Tensor], t: Tensor, betas: tuple[float, float], eps: float
) -> Tensor:
    """Update moments in place; return (m / c1) / (sqrt(v / c2) + eps).

    rows: gradients, first moments and second moments, of any shape; t [] or one that goes with it.
    """
    return _adam_direction(rows, t, betas, eps).div_(correction(betas[0], t))


def _adam_direction(
    rows: Sequence[Tensor], t: Tensor, betas: tuple[float, float], eps: float
) -> Tensor:
    """Return the same without c1."""
    gradients, mean, square = rows
    mean.lerp_(gradients, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(gradients, gradients, value=1 - betas[1])
    denominator = (square / correction(betas[1], t)).sqrt_().add_(eps)
    return denominator.reciprocal_().mul_(mean)


def correction(beta: float, t: Tensor) -> Tensor:
    """Return 1 - beta^(t + 1), float32; float64 on the way, as it is tiny at first."""
    return (1 - torch.pow(beta, t.double() + 1)).float()
