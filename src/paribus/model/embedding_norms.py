"""The normalizations of the embedding stage: the arms of the flagship and their mechanisms.

Each maps x [..., D] to [..., D] and is built from the setting. A new one is a few lines here, or a
module of your own at the site `model.modules.embedding`.

Why the mechanisms: at init std 0.02 LayerNorm lifts the norm of the first block's input from about
0.02 sqrt(2 D) = 0.3 to sqrt(D) = 11.3 (D = 128), some 35 times. `fixed_scale` does only that,
`rms_free` makes it adaptive, `rmsnorm` adds a gain, `layernorm` adds centring and a bias, and
`center` does nothing but centre.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paribus.errors import ParibusError, nearest
from paribus.study import Setting

LAYERNORM_EPS = 1e-5
RMSNORM_EPS = 1e-6

_NORMS: dict[str, type[nn.Module]] = {}


def embedding_norm(name: str) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Register a class under `name`, the value of `model.embedding.norm` in a study."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        if name in _NORMS:
            raise ValueError(f"embedding norm '{name}' is registered twice")
        _NORMS[name] = cls
        return cls

    return register


def embedding_norm_class(name: str) -> type[nn.Module]:
    if name not in _NORMS:
        raise ParibusError(f"model.embedding.norm = '{name}' is unknown: {nearest(name, _NORMS)}")
    return _NORMS[name]


def embedding_norm_names() -> list[str]:
    return list(_NORMS)


@embedding_norm("none")
class NoNorm(nn.Identity):
    """The baseline: x."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()


@embedding_norm("layernorm")
class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(var + eps) * gain + bias (Ba et al. 2016)."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.model.d_model, eps=setting.model.embedding.eps or LAYERNORM_EPS)


@embedding_norm("rmsnorm")
class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gain, without a bias (Zhang & Sennrich 2019)."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.model.d_model, eps=setting.model.embedding.eps or RMSNORM_EPS)


@embedding_norm("rms_free")
class ParameterFreeRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps): the scale without a gain to learn."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.d_model = setting.model.d_model
        self.eps = setting.model.embedding.eps or RMSNORM_EPS

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.d_model,), eps=self.eps)


@embedding_norm("center")
class Center(nn.Module):
    """x - mean(x): LayerNorm's centring alone."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True)


@embedding_norm("fixed_scale")
class FixedScale(nn.Module):
    """x * c, with c a constant that gives x at initialisation the norm sqrt(D) of LayerNorm."""

    scale: Tensor

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        init = setting.model.init
        summed = setting.model.embedding.norm_at == "sum"
        variance = init.token_std**2 + (init.position_std**2 if summed else 0.0)
        if variance == 0:
            raise ParibusError(
                "model.embedding.norm = 'fixed_scale' needs embeddings that are not all zero; "
                "give model.init.token_std a positive value"
            )
        # A buffer, as replicas of a stack may differ in their init.
        self.register_buffer("scale", torch.tensor(1 / math.sqrt(variance)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale
