"""Causal multi-head self-attention and its common variants.

Axes: B batch, T new positions, S all positions so far, D d_model, H query heads, G key-value heads,
K channels per head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paribus.engine.model.attentions import KeyValueCache, visible
from paribus.engine.model.layers import Dropout, Linear, capped
from paribus.engine.model.parts import ModelConfig, find_part, part
from paribus.engine.ops import functional as ops


@part("causal", cached=True)
class Attention(nn.Module):
    """Multi-head (Vaswani et al. 2017) or grouped-query attention (Ainslie et al. 2023).

    Each of G key-value heads is shared by H / G query heads.

    Args:
        model: configuration of the model.
        turn: position encoding that rotates queries and keys, or None.
    """

    fuses = True
    residual_projections = ("out",)
    undecayed = ("q_norm", "k_norm")

    def __init__(self, model: ModelConfig, turn: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = model.layer or 0
        self.n_head, self.n_kv_head = model.n_head, model.n_kv_head
        self.softcap, self.window = model.attention.softcap, model.attention.window
        width = (self.n_head + 2 * self.n_kv_head) * model.head_width
        self.qkv = Linear(model.d_model, width, bias=model.bias)
        self.out = Linear(model.d_model, model.d_model, bias=model.bias)
        self.is_normed = model.attention.qk_norm != "none"
        norm = find_part("norms", model.attention.qk_norm, "model.attention.qk_norm").module
        self.q_norm, self.k_norm = (
            norm(model, model.head_width, model.norm.eps, model.bias) for _ in range(2)
        )
        self.turn = turn
        # Probes read the final queries and keys here: [B, H + G, T, K].
        self.query_key = nn.Identity()
        self.dropout = Dropout(model.dropout)

    def forward(self, x_BTD: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Map x_BTD to [B, T, D], where x_BTD contains only the new tokens if a cache is given."""
        B, T, D = x_BTD.shape
        H, G = self.n_head, self.n_kv_head
        start = 0 if cache is None else cache.length
        qkv_BTPK = self.qkv(x_BTD).view(B, T, H + 2 * G, D // H)
        q_BHTK, k_BGTK, v_BGTK = qkv_BTPK.transpose(1, 2).split((H, G, G), dim=1)
        if self.is_normed:  # in float32, regardless of the dtype of products
            q_BHTK = self.q_norm(q_BHTK.float()).to(v_BGTK.dtype)
            k_BGTK = self.k_norm(k_BGTK.float()).to(v_BGTK.dtype)
        if self.turn is not None:
            places_T = torch.arange(start, start + T, device=x_BTD.device)
            q_BHTK, k_BGTK = self.turn(q_BHTK, k_BGTK, places_T)
            q_BHTK, k_BGTK = q_BHTK.to(v_BGTK.dtype), k_BGTK.to(v_BGTK.dtype)
        if self.query_key._forward_hooks:  # copied only if a probe reads them
            self.query_key(torch.cat([q_BHTK, k_BGTK], dim=1))
        if cache is not None:
            k_BGTK, v_BGTK = cache.append(self.layer, k_BGTK, v_BGTK)
        k_BHSK, v_BHSK = (_for_each_query(x, H // G) for x in (k_BGTK, v_BGTK))
        y_BHTK = self._mixed(q_BHTK, k_BHSK, v_BHSK, start)
        return self.out(y_BHTK.transpose(1, 2).reshape(B, T, D))

    def is_plain(self, T: int) -> bool:
        """Return whether attention over T positions is plain multi-head attention."""
        is_plain = self.n_kv_head == self.n_head and self.turn is None and not self.is_normed
        return is_plain and not self._is_written_out(T)

    def _is_written_out(self, S: int) -> bool:
        """Return whether attention over S positions uses options that fused kernels lack.

        Fused kernels have no soft cap and no separate mask for each replica in a stack, and their
        dropout uses the global generator.
        """
        is_windowed = self.window is not None and self.window < S
        drops = self.training and self.dropout.p > 0
        return is_windowed or drops or self.softcap is not None

    def _mixed(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, start: int) -> Tensor:
        """Compute attention outputs [B, H, T, K] for queries that begin at position `start`."""
        T, S = q_BHTK.shape[-2], k_BHSK.shape[-2]
        if self._is_written_out(S):
            products_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2)
            scores_BHTS = products_BHTS.float() / math.sqrt(q_BHTK.shape[-1])
            if self.softcap is not None:
                scores_BHTS = capped(scores_BHTS, self.softcap)
            hidden_TS = ~visible(start, T, S, self.window, q_BHTK.device)
            weights_BHTS = scores_BHTS.masked_fill(hidden_TS, -math.inf).softmax(dim=-1)
            return self.dropout(weights_BHTS).to(v_BHSK.dtype) @ v_BHSK
        if start and T > 1:
            seen_TS = visible(start, T, S, None, q_BHTK.device)
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, seen_TS)
        # A single new position attends to all others.
        return ops.attention(q_BHTK, k_BHSK, v_BHSK, is_causal=start == 0)


def _for_each_query(x_BGSK: Tensor, times: int) -> Tensor:
    """Repeat every key or value head `times` times, giving [B, G * times, S, K]."""
    return x_BGSK if times == 1 else x_BGSK.repeat_interleave(times, dim=1)
