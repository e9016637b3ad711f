"""Operations of a model: each is computed by a compiled kernel if one supports it, else by PyTorch.

Both give the same numbers up to rounding.

Axes: B batch, H heads, T positions, S visible positions, K channels of a head, P = 3 H heads of a
projection, D and M channels; for AdamW, R replicas of N numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from paribus.engine.ops.kernels import causal_attention, linear_maps, rowwise
from paribus.engine.ops.kernels.calling import can_read, product_dtype

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


def linear(x: Tensor, weight_MD: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """Return x [..., D] times the weight, plus the bias: [..., M]."""
    if linear_maps.supports(x, weight_MD, bias_M):
        return linear_maps._Linear.apply(x, weight_MD, bias_M, product_dtype())
    return F.linear(x, weight_MD, bias_M)


def norm(
    x: Tensor,
    gain_D: Tensor | None,
    bias_D: Tensor | None,
    eps: float,
    *,
    centred: bool,
    cast_output: bool = False,
) -> Tensor:
    """Return LayerNorm of x [..., D], or RMSNorm if not `centred`.

    cast_output: the result only enters products, so it may have the dtype of autocast.
    """
    if rowwise.supports_norm(x, gain_D, bias_D):
        dtype = product_dtype() if cast_output else x.dtype
        return rowwise._Norm.apply(x, gain_D, bias_D, eps, centred, dtype)
    if centred:
        return F.layer_norm(x, x.shape[-1:], gain_D, bias_D, eps)
    return F.rms_norm(x, x.shape[-1:], gain_D, eps)


def activation(kind: str, x: Tensor) -> Tensor:
    """Apply one of `ACTIVATIONS`."""
    if rowwise.supports_activation(x):
        return rowwise._Activation.apply(x, rowwise.ACTIVATIONS[kind])
    return ACTIVATIONS[kind](x)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Return SiLU(gate) up."""
    if rowwise.supports_activation(gate, up):
        return rowwise._Gated.apply(gate, up)
    return F.silu(gate) * up


def attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, is_causal: bool) -> Tensor:
    """Return softmax(q k^T / sqrt(K)) v, [B, H, T, K]; causal, or over all S positions.

    Values may have another number of channels than queries and keys.
    """
    if any(is_batchedtensor(x) for x in (q_BHTK, k_BHSK, v_BHSK)):
        return _MappedAttention.apply(q_BHTK, k_BHSK, v_BHSK, is_causal)
    if is_causal and causal_attention.supports(q_BHTK, k_BHSK, v_BHSK):
        return causal_attention._CausalAttention.apply(q_BHTK, k_BHSK, v_BHSK)
    if q_BHTK.is_cpu and q_BHTK.dtype == torch.bfloat16:
        # PyTorch's fused kernel for the CPU takes several times as long in bfloat16.
        with torch.autocast("cpu", enabled=False):
            q_BHTK, k_BHSK, v_BHSK = q_BHTK.float(), k_BHSK.float(), v_BHSK.float()
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)
    if q_BHTK.is_cuda and any(x.requires_grad for x in (q_BHTK, k_BHSK, v_BHSK)):
        return ordered_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)


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
        stacked = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims, strict=False)
        ]
        q, k, v = (x_RBHTK.flatten(0, 1) for x_RBHTK in stacked)
        y = attention(q, k, v, is_causal=is_causal)
        return y.unflatten(0, (info.batch_size, -1)), 0


def ordered_attention(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """Return PyTorch's fused attention with gradients that are the same bits every time.

    On CUDA, flash attention adds up the gradient of queries from blocks of keys as they finish,
    unless deterministic algorithms are required. A whole training step cannot require them, because
    a custom module may use a function that has no deterministic kernel. So they are required in the
    backward pass of attention alone.
    """
    q, k, v = (_SetDeterministic.apply(x, True) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return _SetDeterministic.apply(y, False)


class _SetDeterministic(torch.autograd.Function):
    """Identity whose backward pass turns on deterministic algorithms, strictly or with
    `warn_only`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, warn_only: bool) -> Tensor:
        ctx.warn_only = warn_only
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        torch.use_deterministic_algorithms(True, warn_only=ctx.warn_only)
        return grad, None


def adamw_step(
    rows_RN: tuple[Tensor, Tensor, Tensor, Tensor],
    rates_R1: Tensor,
    t: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Write weights -= rate (m / c1) / (sqrt(v / c2) + eps) in place, as torch.optim.AdamW.

    rows_RN: weights, gradients, first and second moments; t: the step from 0, int64 [].
    """
    if can_read(*rows_RN):
        rowwise.adamw_step(rows_RN, rates_R1, t, betas, eps)
        return
    weights, gradients, mean, square = rows_RN
    mean.lerp_(gradients, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(gradients, gradients, value=1 - betas[1])
    denominator = (square / correction(betas[1], t)).sqrt_().add_(eps)
    direction = denominator.reciprocal_().mul_(mean)
    weights.sub_(direction.mul_(rates_R1 / correction(betas[0], t)))


def correction(beta: float, t: Tensor) -> Tensor:
    """Return 1 - beta^(t + 1), float32, computed in float64 because it is small at first."""
    return (1 - torch.pow(beta, t.double() + 1)).float()
