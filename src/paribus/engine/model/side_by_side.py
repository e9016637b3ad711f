"""PyTorch function mode for running several model replicas with `torch.func.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from paribus.engine.ops import functional as ops


class SideBySide(TorchFunctionMode):
    """Function mode that makes attention and linear maps in custom modules efficient under vmap.

    `F.scaled_dot_product_attention` is replaced by `ops.attention`, unless the module is compiled
    or selects a backend with `sdpa_kernel`.

    vmap decomposes linear maps before autocast sees them, so a float32 bias would promote the
    result to float32. The arguments of `F.linear` are therefore cast to `lower`, the dtype of
    autocast, if it is not None.
    """

    def __init__(self, lower: torch.dtype | None) -> None:
        super().__init__()
        self._lower = lower

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and self._lower is not None:
            args = tuple(x.to(self._lower) if isinstance(x, Tensor) else x for x in args)
        if (
            func is F.scaled_dot_product_attention
            and len(args) == 3
            and kwargs.keys() <= {"is_causal"}
            and not torch.compiler.is_compiling()
            and torch.backends.cuda.flash_sdp_enabled()  # the flag also covers CPUs
        ):
            y = ops.attention(*args, is_causal=kwargs.get("is_causal", False))
            device = y.device.type
            if torch.is_autocast_enabled(device):  # the dtype that PyTorch would return
                return y.to(torch.get_autocast_dtype(device))
            return y
        return func(*args, **kwargs)
