"""Decoder-only Transformer, by default in the style of GPT-3.

References: Radford et al. 2019 (GPT-2), Brown et al. 2020 (GPT-3), Xiong et al. 2020 (Pre-LN). The
module computes a single replica, without any code for vmap or initialization. Norms, positions,
attentions and MLPs are in separate files, and custom modules can replace them (see `parts`).

Axes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paribus.engine.model.attentions import KeyValueCache
from paribus.engine.model.layers import Dropout, Table, capped
from paribus.engine.model.parts import ModelConfig, custom_part, find_part, module_class
from paribus.engine.model.shared import Shared, auxiliary_names, call, takes_shared
from paribus.engine.model.uses import PLACES
from paribus.engine.ops import functional as ops
from paribus.engine.ops.fused_block import fused_if_possible
from paribus.errors import ParibusError


class Embedding(nn.Module):
    """Token and position embedding with a norm.

    Computes norm(E_tok(t) + E_pos(p)), or norm(E_tok(t)) + E_pos(p), for token t at position p. The
    position term is omitted if positions are encoded in the attention or not at all.
    """

    undecayed = ("norm",)

    def __init__(self, model: ModelConfig, positions: nn.Module | None = None) -> None:
        super().__init__()
        self.tokens = Table(model.vocab_size, model.d_model)
        self.positions = positions
        norm = find_part("norms", model.embedding.norm, "model.embedding.norm").module
        self.norm = norm(model, model.d_model, model.embedding.eps, True)
        self.norm_at = model.embedding.norm_at
        self.dropout = Dropout(model.dropout)

    def forward(self, tokens_BT: Tensor, start: int = 0) -> Tensor:
        """Embed tokens_BT (int64) as [B, T, D], with the first token at position `start`."""
        tokens_BTD = self.tokens(tokens_BT)
        if self.positions is None:
            return self.dropout(self.norm(tokens_BTD))
        end = start + tokens_BT.shape[-1]
        positions_TD = self.positions(torch.arange(start, end, device=tokens_BT.device))
        if self.norm_at == "tokens":
            return self.dropout(self.norm(tokens_BTD) + positions_TD)
        return self.dropout(self.norm(tokens_BTD + positions_TD))


class Block(nn.Module):
    """Residual block with attention and MLP, pre-norm or post-norm.

    Pre-norm: x + attention(norm(x)), then x + mlp(norm(x)) (Xiong et al. 2020). Post-norm:
    norm(x + attention(x)), then norm(x + mlp(x)) (Vaswani et al. 2017).
    """

    undecayed = ("attention_norm", "mlp_norm")

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        modules = model.modules
        self.is_pre = model.norm.placement == "pre"
        self.attention_norm = _norm(model, "block_norm")
        self.attention: Any = custom_part(model, "attention")
        if self.attention is None:
            attention = find_part("attentions", model.attention.kind, "model.attention.kind").module
            self.attention = attention(model, study_positions(model, "attention"))
        self.attention_dropout = Dropout(model.dropout)
        self.mlp_norm = _norm(model, "block_norm")
        mlp = find_part("mlps", model.mlp.kind, "model.mlp.kind").module
        self.mlp: Any = custom_part(model, "mlp") or mlp(model)
        self.mlp_dropout = Dropout(model.dropout)
        # Built-in attentions and MLPs start with a product, so their norm may round its output.
        if self.is_pre and modules.block_norm is None:
            self.attention_norm.cast_output = modules.attention is None
            self.mlp_norm.cast_output = modules.mlp is None

    @fused_if_possible
    def forward(
        self, x_BTD: Tensor, cache: KeyValueCache | None = None, shared: Shared | None = None
    ) -> Tensor:
        """Map x_BTD to [B, T, D], where x_BTD contains only the new tokens if a cache is given."""
        reads = () if cache is None else (cache,)
        h_BTD = call(self.attention_norm, x_BTD, shared=shared) if self.is_pre else x_BTD
        h_BTD = call(self.attention, h_BTD, *reads, shared=shared)
        x_BTD = x_BTD + self.attention_dropout(h_BTD)
        if not self.is_pre:
            x_BTD = call(self.attention_norm, x_BTD, shared=shared)
        h_BTD = call(self.mlp_norm, x_BTD, shared=shared) if self.is_pre else x_BTD
        h_BTD = call(self.mlp, h_BTD, shared=shared)
        x_BTD = x_BTD + self.mlp_dropout(h_BTD)
        return x_BTD if self.is_pre else call(self.mlp_norm, x_BTD, shared=shared)


class Head(nn.Module):
    """Linear map to logits, with tied (Press & Wolf 2017) or separate weights."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.softcap = model.head.softcap
        self.weight: nn.Parameter | None = None
        if not model.head.tied:
            self.weight = nn.Parameter(torch.empty(model.vocab_size, model.d_model))

    def forward(self, x: Tensor, tokens_VD: Tensor) -> Tensor:
        """Map x [..., D] to logits [..., V], using `tokens_VD` as the weight if tied."""
        logits = ops.linear(x, tokens_VD if self.weight is None else self.weight)
        return logits if self.softcap is None else capped(logits, self.softcap)


class GPT(nn.Module):
    """Decoder-only Transformer that maps tokens_BT to logits [B, T, V].

    `embedding` computes the first block's input and contains the token embeddings that a tied head
    reuses.

    Attributes:
        auxiliaries: Names of the auxiliary losses that the parts declare.
        can_cache: Whether all parts support a key-value cache.
        shares: Whether the `forward` of any part has an argument `shared`.
    """

    undecayed = ("final_norm",)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        modules = model.modules
        self.embedding: Any = custom_part(model, "embedding")
        if self.embedding is None:
            self.embedding = Embedding(model, study_positions(model, "embedding"))
        self.blocks = nn.ModuleList(Block(model.in_block(layer)) for layer in range(model.n_layer))
        is_pre = model.norm.placement == "pre"
        self.final_norm: Any = _norm(model, "final_norm") if is_pre else nn.Identity()
        self.head: Any = custom_part(model, "head") or Head(model)
        if is_pre and modules.final_norm is None:
            self.final_norm.cast_output = modules.head is None  # type: ignore
        _require_trainable(self)
        custom = {
            site: module_class(path, f"model.modules.{site}", model.folder)
            for site, path in modules.named.items()
        }
        attention = find_part("attentions", model.attention.kind, "model.attention.kind")
        self.can_cache = all(getattr(part, "cached", False) for part in custom.values()) and (
            "attention" in custom or attention.cached
        )
        self.auxiliaries = auxiliary_names(self)
        parts = [part for module in (self, *self.blocks) for part in module.children()]
        self.shares = any(takes_shared(type(part).forward) for part in parts)

    def forward(
        self,
        tokens_BT: Tensor,
        cache: KeyValueCache | None = None,
        shared: Shared | None = None,
    ) -> Tensor:
        """Map tokens_BT (int64) to logits [B, T, V].

        Args:
            cache: key-value cache of the preceding tokens.
            shared: container for tensors that parts exchange and for auxiliary losses.
        """
        shared = Shared(self.auxiliaries) if shared is None else shared
        return self.logits(self.hidden(tokens_BT, cache, shared), shared)

    def hidden(
        self,
        tokens_BT: Tensor,
        cache: KeyValueCache | None = None,
        shared: Shared | None = None,
    ) -> Tensor:
        """Return the final hidden states [B, T, D]; see `forward` for the arguments."""
        shared = Shared(self.auxiliaries) if shared is None else shared
        starts = () if cache is None else (cache.length,)
        x_BTD = call(self.embedding, tokens_BT, *starts, shared=shared)
        for block in self.blocks:
            x_BTD = block(x_BTD, cache, shared)
        if cache is not None:
            cache.length += tokens_BT.shape[1]
        return call(self.final_norm, x_BTD, shared=shared)

    def logits(self, x: Tensor, shared: Shared | None = None) -> Tensor:
        """Map hidden states x [..., D] to logits [..., V]."""
        shared = Shared(self.auxiliaries) if shared is None else shared
        return call(self.head, x, self.embedding.tokens.weight, shared=shared)


def _require_trainable(model: GPT) -> None:
    """Raise ParibusError if a custom part cannot be trained.

    A custom embedding must define `tokens`, the nn.Embedding that a tied head reuses. Parameters
    must be trainable, nonempty and float32.
    """
    if not isinstance(getattr(model.embedding, "tokens", None), nn.Embedding):
        raise ParibusError(
            f"the custom embedding {type(model.embedding).__name__} has no nn.Embedding named "
            "`tokens`, which a tied head reuses; assign self.tokens in its constructor",
            code="own_code",
        )
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            problem = (
                "is frozen; register it as a buffer, or set learning_rate_factor = 0 for its group "
                "in training.optimizer.groups"
            )
        elif parameter.dtype != torch.float32 or not parameter.numel():
            problem = (
                f"has {parameter.numel()} elements of type {parameter.dtype}; create it with at "
                "least one element of type torch.float32"
            )
        else:
            continue
        raise ParibusError(f"parameter '{name}' of a custom module {problem}", code="own_code")


def study_positions(model: ModelConfig, place: str) -> nn.Module | None:
    """Build the study's position encoding if it is applied at `place`, otherwise return None.

    Custom embeddings and attentions call this with "embedding" or "attention" to use the study's
    position encoding.
    """
    custom = custom_part(model, "positions")
    shipped = find_part("positions", model.positions.kind, "model.positions.kind").module
    positions: Any = custom or shipped(model)
    if getattr(positions, "stands", None) not in PLACES:
        raise ParibusError(
            f"model.modules.positions = '{model.modules.positions}' does not declare where it is "
            f"applied; set the class attribute `stands` to one of {', '.join(PLACES)}",
            code="own_code",
        )
    return positions if positions.stands == place else None


def _norm(model: ModelConfig, site: str) -> Any:
    norm = find_part("norms", model.norm.kind, "model.norm.kind").module
    return custom_part(model, site) or norm(model, model.d_model, model.norm.eps, model.bias)
