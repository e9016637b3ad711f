"""Model operations, computed by a compiled kernel if one supports the inputs, or by PyTorch.

Both return the same results up to rounding.

Axes: B batch, H heads, T positions, S visible positions, K channels per head, D input and M output
channels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from paribus.engine.ops.kernels import causal_attention, linear_maps, rowwise
from paribus.engine.ops.kernels.calling import product_dtype

adamw_step = rowwise.adamw_step

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


def linear(x: Tensor, weight_MD: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """Apply the linear map x W^T + b, from x [..., D] to [..., M]."""
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
    """Apply LayerNorm to x [..., D], or RMSNorm if not `centred`.

    Args:
        cast_output: whether to allow a result in the autocast dtype; set it if only matrix
            products use the result.
    """
    if rowwise.supports_norm(x, gain_D, bias_D):
        dtype = product_dtype() if cast_output else x.dtype
        return rowwise._Norm.apply(x, gain_D, bias_D, eps, centred, dtype)
    if centred:
        return F.layer_norm(x, x.shape[-1:], gain_D, bias_D, eps)
    return F.rms_norm(x, x.shape[-1:], gain_D, eps)


def activation(kind: str, x: Tensor) -> Tensor:
    """Apply the activation `kind`, a key of `ACTIVATIONS`, elementwise."""
    if rowwise.supports_activation(x):
        return rowwise._Activation.apply(x, rowwise.ACTIVATIONS[kind])
    return ACTIVATIONS[kind](x)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Return SiLU(gate) * up."""
    if rowwise.supports_activation(gate, up):
        return rowwise._Gated.apply(gate, up)
    return F.silu(gate) * up


def attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, is_causal: bool) -> Tensor:
    """Return the attention softmax(q k^T / sqrt(K)) v, [B, H, T, K].

    With `is_causal`, queries do not attend to later positions. Values may have a different number
    of channels than queries and keys.
    """
    if any(is_batchedtensor(x) for x in (q_BHTK, k_BHSK, v_BHSK)):
        return _MappedAttention.apply(q_BHTK, k_BHSK, v_BHSK, is_causal)
    if is_causal and causal_attention.supports(q_BHTK, k_BHSK, v_BHSK):
        return causal_attention._CausalAttention.apply(q_BHTK, k_BHSK, v_BHSK)
    if q_BHTK.is_cpu and q_BHTK.dtype == torch.bfloat16:
        # PyTorch's fused CPU kernel is several times slower in bfloat16.
        with torch.autocast("cpu", enabled=False):
            q_BHTK, k_BHSK, v_BHSK = q_BHTK.float(), k_BHSK.float(), v_BHSK.float()
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)
    if q_BHTK.is_cuda and any(x.requires_grad for x in (q_BHTK, k_BHSK, v_BHSK)):
        return ordered_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=is_causal)


class _MappedAttention(torch.autograd.Function):
    """Attention under `torch.func.vmap`, computed in a single call on R x B sequences.

    PyTorch has no batching rule for its CPU kernel. Its rule for CUDA checks `requires_grad` of the
    mapped tensors, which is always False, and therefore does not save the tensors that the backward
    pass needs.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        raise NotImplementedError("_MappedAttention requires vmap; call ops.attention instead")

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
    """Compute PyTorch's fused attention with bitwise reproducible gradients.

    On CUDA, flash attention accumulates the query gradient over blocks of keys in the order in
    which they finish, unless deterministic algorithms are required. A custom module may use a
    function without a deterministic kernel, so they are required only in attention's backward pass.
    """
    q, k, v = (_SetDeterministic.apply(x, True) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return _SetDeterministic.apply(y, False)


class _SetDeterministic(torch.autograd.Function):
    """Identity whose backward pass calls `torch.use_deterministic_algorithms`.

    With `warn_only`, later nondeterministic functions warn instead of raising an error.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, warn_only: bool) -> Tensor:
        ctx.warn_only = warn_only
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        torch.use_deterministic_algorithms(True, warn_only=ctx.warn_only)
        return grad, None
