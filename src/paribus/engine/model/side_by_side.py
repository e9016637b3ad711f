"""The model's functions as a stack needs them, where `torch.func.vmap` alone would not do.

Axes: R replicas, B batch, H heads, T time, K channels of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paribus.engine.ops.functional import by_kernel, ordered_attention


class WithKernels(TorchFunctionMode):
    """Inside it, causal attention that an own module asks of PyTorch is computed by the compiled
    kernel where that supports it: PyTorch's takes several times as long on a CPU in bfloat16.

    Not where a backend was chosen (`sdpa_kernel`), nor while a module is compiled, nor where it is
    computed again in the backward pass (`checkpoint`), which nothing here is around.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_asked = func is F.scaled_dot_product_attention and not torch.compiler.is_compiling()
        if is_asked and _is_plain(args, kwargs):
            q, k, v = args
            return self._attention(q, k, v, kwargs.get("is_causal", False))
        return func(*args, **kwargs)

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        if is_causal and _is_free() and (y := by_kernel(q, k, v)) is not None:
            return y.to(_autocast_dtype(q))
        return self._otherwise(q, k, v, is_causal)

    def _otherwise(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


class SideBySide(WithKernels):
    """Inside it, modules mapped over replicas compute what they compute alone, and as fast.

    Attention is one call over R x B sequences. PyTorch has no batching rule for its CPU kernel; and
    on CUDA its rule asks a mapped tensor whether it needs a gradient, hears no, and does not keep
    what the backward pass needs.

    Linear maps under autocast take their bias in the lower precision too. Mapped, they are taken
    apart before autocast sees them, and a float32 bias would lift the result to float32.
    """

    def __init__(self, lower: torch.dtype | None) -> None:
        super().__init__()
        self._lower = lower

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear and self._lower is not None:
            args = tuple(x.to(self._lower) if isinstance(x, Tensor) else x for x in args)
        return super().__torch_function__(func, types, args, kwargs)

    def _otherwise(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        return _Attention.apply(q, k, v, is_causal)  # type: ignore[no-any-return]


def _is_plain(args: Any, kwargs: Any) -> bool:
    """Tell whether the call has nothing but queries, keys, values and `is_causal`."""
    return len(args) == 3 and kwargs.keys() <= {"is_causal"}


def _is_free() -> bool:
    """Tell whether no backend is chosen, and nothing is told what the backward pass will need."""
    compiled: Any = torch._C
    hooks = compiled._autograd._top_saved_tensors_default_hooks(True)
    return hooks is None and torch.backends.cuda.flash_sdp_enabled()  # the flag is of CPUs too


def _autocast_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which PyTorch's attention would answer."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class _Attention(torch.autograd.Function):
    """Attention with a batching rule of its own; only ever called inside `vmap`."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        raise NotImplementedError("SideBySide is for modules inside torch.func.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        *tensors, is_causal = args
        folded = []
        for x, dim in zip(tensors, in_dims, strict=False):
            x_RBHTK = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            folded.append(x_RBHTK.flatten(0, 1))
        q, k, v = folded
        y = ordered_attention(q, k, v, is_causal=is_causal)
        return y.unflatten(0, (info.batch_size, -1)), 0


def stacked_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Stack the buffers {name: [R, ...]} of one model per replica: constants that follow from what
    they differ in, such as the scale of an init. None where they are all one model."""
    if all(model is models[0] for model in models):
        return {}
    names = [name for name, _ in models[0].named_buffers()]
    return {name: torch.stack([model.get_buffer(name) for model in models]) for name in names}


@torch.no_grad()
def read_together(
    models: Sequence[nn.Module], weights: Mapping[str, Tensor], tokens_BT: Tensor
) -> Tensor:
    """Return logits [R, B, T, V] of the same tokens by every replica, each alone.

    `models` are one per replica, for their structure and buffers, in evaluation mode; `weights`
    {parameter name: [R, ...]}. Up to rounding what each gives alone: products are batched.
    """
    state = {**weights, **stacked_buffers(models)}

    def read(one: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(models[0], one, (tokens_BT,))

    with SideBySide(None):
        return torch.func.vmap(read)(state)
