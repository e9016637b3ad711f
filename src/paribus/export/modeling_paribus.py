"""GPT-2 with a normalization in the embedding stage, as paribus trains it.

This file is copied into exported folders and stands alone: it needs torch and transformers (4.57 or
5). Attention, caching and generation are GPT-2's own. `config.embedding_norm_at` says where the
norm stands: "sum" is norm(wte(t) + wpe(p)), "tokens" is norm(wte(t)) + wpe(p).
"""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model


class ParibusConfig(GPT2Config):
    """GPT-2's, with `embedding_norm`, `embedding_norm_at`, `embedding_eps`, `embedding_scale`.

    The model type is another than GPT-2's, so that no program takes it for one and drops the norm.
    """

    model_type = "paribus"


class RMSNormWithoutGain(nn.Module):
    """x / sqrt(mean(x^2) + eps)."""

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__()
        self.eps = config.embedding_eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], eps=self.eps)


class Center(nn.Module):
    """x - mean(x)."""

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True)


class FixedScale(nn.Module):
    """x * c."""

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__()
        self.scale = config.embedding_scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


NORMS = {
    "layernorm": lambda config: nn.LayerNorm(config.n_embd, eps=config.embedding_eps),
    "rmsnorm": lambda config: nn.RMSNorm(config.n_embd, eps=config.embedding_eps),
    "rms_free": RMSNormWithoutGain,
    "center": Center,
    "fixed_scale": FixedScale,
}


class NormedEmbedding(nn.Embedding):
    """Token embeddings, normalised as they are looked up; the tied head reads the raw ones."""

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__(config.vocab_size, config.n_embd)
        self.norm = NORMS[config.embedding_norm](config)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (its name in PyTorch)
        return self.norm(super().forward(input))


class ParibusModel(GPT2Model):
    config_class = ParibusConfig

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__(config)
        if config.embedding_norm_at == "tokens":
            self.wte = NormedEmbedding(config)
        else:
            # GPT-2 hands the sum of both embeddings to its dropout, and nothing else.
            norm = NORMS[config.embedding_norm](config)
            self.drop = nn.Sequential(OrderedDict(norm=norm, dropout=self.drop))
        self.post_init()


class ParibusForCausalLM(GPT2LMHeadModel):
    config_class = ParibusConfig

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__(config)
        self.transformer = ParibusModel(config)
        self.post_init()
