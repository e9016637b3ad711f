"""The model, whole: a GPT-3-style decoder-only Pre-LayerNorm Transformer with tied embeddings.

Radford et al. 2019 (GPT-2), Brown et al. 2020 (GPT-3); Pre-LN: Xiong et al. 2020. GELU is the exact
one (Hendrycks & Gimpel 2016), as in nanoGPT. The module describes one replica and knows nothing of
stacks, arms, or how it is initialised.

Axes: B batch, T time, D d_model, H heads, K channels of a head, V vocabulary.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paribus.model.cache import KeyValueCache
from paribus.model.dropout import Dropout
from paribus.model.embedding import Embedding
from paribus.model.own import site_class
from paribus.study import Setting


class Attention(nn.Module):
    """Causal multi-head self-attention: x_BTD -> [B, T, D].

    With a cache x continues the text read before, and `layer` says whose keys and values to use.
    """

    residual_projections = ("out",)

    def __init__(self, setting: Setting, vocab_size: int) -> None:
        super().__init__()
        model = setting.model
        self.n_head = model.n_head
        self.qkv = nn.Linear(model.d_model, 3 * model.d_model, bias=model.bias)
        self.out = nn.Linear(model.d_model, model.d_model, bias=model.bias)
        self.dropout = Dropout(setting.training.dropout)

    def forward(self, x_BTD: Tensor, cache: KeyValueCache | None = None, layer: int = 0) -> Tensor:
        B, T, D = x_BTD.shape
        qkv = self.qkv(x_BTD).view(B, T, 3, self.n_head, D // self.n_head)
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            k_BHSK, v_BHSK = cache.append(layer, k_BHTK, v_BHTK)
            # A single new position may look at all; a first piece is the ordinary causal case.
            seen = None if T == 1 or not cache.length else cache.mask(T, x_BTD.device)
            y_BHTK = F.scaled_dot_product_attention(
                q_BHTK, k_BHSK, v_BHSK, seen, is_causal=T > 1 and seen is None
            )
        elif self.training and self.dropout.p > 0:
            # Attention written out: the fused kernel draws its dropout from the global generator.
            products_BHTT = q_BHTK @ k_BHTK.transpose(-1, -2)
            scores_BHTT = products_BHTT.float() / math.sqrt(D // self.n_head)
            future = torch.ones(T, T, dtype=torch.bool, device=x_BTD.device).triu(1)
            weights_BHTT = scores_BHTT.masked_fill(future, -math.inf).softmax(dim=-1)
            y_BHTK = self.dropout(weights_BHTT) @ v_BHTK
        elif q_BHTK.is_cpu and q_BHTK.dtype == torch.bfloat16:
            # PyTorch's fused kernel for the CPU takes several times as long in bfloat16.
            with torch.autocast("cpu", enabled=False):
                y_BHTK = F.scaled_dot_product_attention(
                    q_BHTK.float(), k_BHTK.float(), v_BHTK.float(), is_causal=True
                )
        else:
            y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        return self.out(y_BHTK.transpose(1, 2).reshape(B, T, D))


class MLP(nn.Module):
    """GELU(x W_up) W_down: x_BTD -> [B, T, D]."""

    residual_projections = ("down",)

    def __init__(self, setting: Setting, vocab_size: int) -> None:
        super().__init__()
        model = setting.model
        self.up = nn.Linear(model.d_model, model.mlp_ratio * model.d_model, bias=model.bias)
        self.down = nn.Linear(model.mlp_ratio * model.d_model, model.d_model, bias=model.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD)))


class LayerNorm(nn.LayerNorm):
    """The norm inside blocks and before the head."""

    def __init__(self, setting: Setting, vocab_size: int) -> None:
        super().__init__(setting.model.d_model, eps=setting.model.norm_eps, bias=setting.model.bias)


class Block(nn.Module):
    """Pre-LN residual block: x + attention(norm(x)), then x + mlp(norm(x))."""

    undecayed = ("attention_norm", "mlp_norm")

    def __init__(self, setting: Setting, vocab_size: int, folder: Path) -> None:
        super().__init__()
        own = setting.model.modules
        norm = site_class(own.block_norm, "block_norm", folder) or LayerNorm
        attention = site_class(own.attention, "attention", folder) or Attention
        mlp = site_class(own.mlp, "mlp", folder) or MLP
        self.attention_norm = norm(setting, vocab_size)
        self.attention = attention(setting, vocab_size)
        self.attention_dropout = Dropout(setting.training.dropout)
        self.mlp_norm = norm(setting, vocab_size)
        self.mlp = mlp(setting, vocab_size)
        self.mlp_dropout = Dropout(setting.training.dropout)

    def forward(self, x_BTD: Tensor, cache: KeyValueCache | None = None, layer: int = 0) -> Tensor:
        reads = () if cache is None else (cache, layer)
        x_BTD = x_BTD + self.attention_dropout(self.attention(self.attention_norm(x_BTD), *reads))
        return x_BTD + self.mlp_dropout(self.mlp(self.mlp_norm(x_BTD)))


class GPT(nn.Module):
    """tokens_BT -> logits [B, T, V].

    With a cache, the tokens go on where those of the last call ended. `embedding` gives the first
    block's input; its token matrix is also the output head (Press & Wolf 2017). `folder` is where
    the import paths of the user's own modules start.
    """

    undecayed = ("final_norm",)

    def __init__(self, setting: Setting, vocab_size: int, folder: Path | None = None) -> None:
        super().__init__()
        folder = folder or Path.cwd()
        own = setting.model.modules
        embedding = site_class(own.embedding, "embedding", folder) or Embedding
        final_norm = site_class(own.final_norm, "final_norm", folder) or LayerNorm
        self.embedding: Any = embedding(setting, vocab_size)
        self.blocks = nn.ModuleList(
            Block(setting, vocab_size, folder) for _ in range(setting.model.n_layer)
        )
        self.final_norm = final_norm(setting, vocab_size)
        self._has_own_parts = any(own.model_dump().values())

    def forward(self, tokens_BT: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        return self.head(self.hidden(tokens_BT, cache))

    def head(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return F.linear(x, self.embedding.tokens.weight)

    def hidden(self, tokens_BT: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """[B, T, D] what the head reads."""
        if cache is None:
            x_BTD = self.embedding(tokens_BT)
            for block in self.blocks:
                x_BTD = block(x_BTD)
        else:
            x_BTD = self.embedding(tokens_BT, cache.length)
            for layer, block in enumerate(self.blocks):
                x_BTD = block(x_BTD, cache, layer)
            cache.advance(tokens_BT.shape[1])
        return self.final_norm(x_BTD)

    @property
    def can_cache(self) -> bool:
        """Whether it can read with a cache: a user's own part may look across positions."""
        return type(self) is GPT and not self._has_own_parts
