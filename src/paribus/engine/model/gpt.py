"""The model, whole: a decoder-only Transformer, by default a GPT-3-style one.

Radford et al. 2019 (GPT-2), Brown et al. 2020 (GPT-3); Pre-LN: Xiong et al. 2020. The module
describes one replica and knows nothing of stacks, arms, or how it is initialised. Norms, positions,
attentions and MLPs are files of their own (`parts`), and any part may be the user's.

Axes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paribus.engine.model.attentions import KeyValueCache
from paribus.engine.model.layers import Dropout, capped
from paribus.engine.model.parts import ModelConfig, Part, find_part, module_class, own_part
from paribus.engine.model.shared import Shared, auxiliary_names, takes_shared
from paribus.engine.model.uses import PLACES
from paribus.engine.ops import functional as ops
from paribus.engine.ops.fused_block import FusedBlock
from paribus.errors import ParibusError


class Embedding(nn.Module):
    """tokens_BT -> norm(E_tok(t) + E_pos(p)), or norm(E_tok(t)) + E_pos(p): [B, T, D].

    The first token stands at position `start`. Positions that do not stand here are not added.
    """

    undecayed = ("norm",)

    def __init__(self, model: ModelConfig, positions: nn.Module | None = None) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocab_size, model.d_model)
        self.positions = positions
        norm = find_part("norms", model.embedding.norm, "model.embedding.norm").module
        self.norm = norm(model, model.d_model, model.embedding.eps, True)
        self.norm_at = model.embedding.norm_at
        self.dropout = Dropout(model.dropout)

    def forward(self, tokens_BT: Tensor, start: int = 0) -> Tensor:
        """tokens_BT int64, the first of them at position `start` -> [B, T, D]."""
        tokens_BTD = self.tokens(tokens_BT)
        if self.positions is None:
            return self.dropout(self.norm(tokens_BTD))
        end = start + tokens_BT.shape[-1]
        positions_TD = self.positions(torch.arange(start, end, device=tokens_BT.device))
        if self.norm_at == "tokens":
            return self.dropout(self.norm(tokens_BTD) + positions_TD)
        return self.dropout(self.norm(tokens_BTD + positions_TD))


class Block(nn.Module):
    """Residual block: x + attention(norm(x)), then x + mlp(norm(x)) (pre-norm, Xiong et al. 2020);
    or norm(x + attention(x)), then norm(x + mlp(x)) (post-norm, Vaswani et al. 2017)."""

    undecayed = ("attention_norm", "mlp_norm")

    def __init__(self, model: ModelConfig, folder: Path) -> None:
        super().__init__()
        self.is_pre = model.norm.placement == "pre"
        self.attention_norm = _norm(model, "block_norm", folder)
        self.attention: Any = own_part(model, "attention", folder) or _attention(model).module(
            model, study_positions(model, "attention", folder)
        )
        self.attention_dropout = Dropout(model.dropout)
        self.mlp_norm = _norm(model, "block_norm", folder)
        mlp = find_part("mlps", model.mlp.kind, "model.mlp.kind").module
        self.mlp: Any = own_part(model, "mlp", folder) or mlp(model)
        self.mlp_dropout = Dropout(model.dropout)
        # Parts that ship cast to bfloat16 first what they read; custom ones get float32.
        if self.is_pre and model.modules.block_norm is None:
            self.attention_norm.cast_output = model.modules.attention is None
            self.mlp_norm.cast_output = model.modules.mlp is None
        self._fused = FusedBlock(self) if self.is_pre else None
        parts = (self.attention_norm, self.attention, self.mlp_norm, self.mlp)
        self._take_shared = [takes_shared(one.forward) for one in parts]
        self.shares = any(self._take_shared)

    def forward(
        self, x_BTD: Tensor, cache: KeyValueCache | None = None, shared: Shared | None = None
    ) -> Tensor:
        """x_BTD -> [B, T, D]; with a cache, T new tokens after those that it holds."""
        if self.shares:
            return self._sharing(x_BTD, cache, shared or Shared())
        if cache is None and self._fused and (fused_BTD := self._fused(x_BTD)) is not None:
            return fused_BTD
        reads = () if cache is None else (cache,)
        if self.is_pre:
            y_BTD = self.attention(self.attention_norm(x_BTD), *reads)
            x_BTD = ops.residual(x_BTD, self.attention_dropout(y_BTD))
            return ops.residual(x_BTD, self.mlp_dropout(self.mlp(self.mlp_norm(x_BTD))))
        y_BTD = self.attention(x_BTD, *reads)
        x_BTD = self.attention_norm(ops.residual(x_BTD, self.attention_dropout(y_BTD)))
        return self.mlp_norm(ops.residual(x_BTD, self.mlp_dropout(self.mlp(x_BTD))))

    def _sharing(self, x_BTD: Tensor, cache: KeyValueCache | None, shared: Shared) -> Tensor:
        """Compute the same with parts that are given `shared`."""
        reads = () if cache is None else (cache,)
        norm1, attention, norm2, mlp = ({"shared": shared} if t else {} for t in self._take_shared)
        y_BTD = self.attention_norm(x_BTD, **norm1) if self.is_pre else x_BTD
        y_BTD = self.attention_dropout(self.attention(y_BTD, *reads, **attention))
        x_BTD = ops.residual(x_BTD, y_BTD)
        x_BTD = x_BTD if self.is_pre else self.attention_norm(x_BTD, **norm1)
        y_BTD = self.mlp_norm(x_BTD, **norm2) if self.is_pre else x_BTD
        x_BTD = ops.residual(x_BTD, self.mlp_dropout(self.mlp(y_BTD, **mlp)))
        return x_BTD if self.is_pre else self.mlp_norm(x_BTD, **norm2)


class Head(nn.Module):
    """x [..., D] -> logits [..., V], by the token matrix (Press & Wolf 2017) or one of its own."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.softcap = model.head.softcap
        shape = (model.vocab_size, model.d_model)
        self.weight: nn.Parameter | None = None
        if not model.head.tied:
            self.weight = nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor, tokens_VD: Tensor) -> Tensor:
        """x [..., D] and the token matrix -> logits [..., V]; one of its own goes before the
        latter."""
        logits = ops.linear(x, tokens_VD if self.weight is None else self.weight)
        return logits if self.softcap is None else capped(logits, self.softcap)


class GPT(nn.Module):
    """tokens_BT -> logits [B, T, V].

    With a cache, the tokens go on where those of the last call ended. `embedding` gives the first
    block's input, and its token matrix to a tied head. `folder` is where the import paths of the
    user's own modules start.
    """

    undecayed = ("final_norm",)

    def __init__(self, model: ModelConfig, folder: Path | None = None) -> None:
        super().__init__()
        folder = folder or Path.cwd()
        embedding = own_part(model, "embedding", folder)
        self.embedding: Any = embedding or Embedding(
            model, study_positions(model, "embedding", folder)
        )
        if not isinstance(getattr(self.embedding, "tokens", None), nn.Embedding):
            raise ParibusError(
                f"model.modules.embedding = '{model.modules.embedding}' has no `tokens`, an "
                "nn.Embedding that a tied head shares"
            )
        self.blocks = nn.ModuleList(
            Block(model.in_block(layer), folder) for layer in range(model.n_layer)
        )
        is_pre = model.norm.placement == "pre"
        self.final_norm: Any = _norm(model, "final_norm", folder) if is_pre else nn.Identity()
        self.head: Any = own_part(model, "head", folder) or Head(model)
        if is_pre and model.modules.final_norm is None:
            self.final_norm.cast_output = model.modules.head is None
        tokens_VD = self.embedding.tokens.weight
        shape = (model.vocab_size, model.d_model)
        if isinstance(self.head, Head) and model.head.tied and tokens_VD.shape != shape:
            raise ParibusError(
                f"model.modules.embedding = '{model.modules.embedding}': its `tokens` have the "
                f"shape {tuple(tokens_VD.shape)}, and a tied head takes {shape}, vocabulary and "
                "width of the model; say model.head.tied = false, or give a head of your own"
            )
        _require_trainable(self)
        named = model.modules.named
        own = [module_class(path, f"model.modules.{site}", folder) for site, path in named.items()]
        self._are_cached = all(getattr(part, "cached", False) for part in own) and (
            "attention" in named or _attention(model).cached
        )
        self.auxiliaries = auxiliary_names(self)
        ends = (self.embedding, self.final_norm, self.head)
        self._take_shared = [takes_shared(one.forward) for one in ends]
        self.shares = any(self._take_shared) or any(block.shares for block in self.blocks)

    def forward(
        self,
        tokens_BT: Tensor,
        cache: KeyValueCache | None = None,
        shared: Shared | None = None,
    ) -> Tensor:
        """tokens_BT int64 -> logits [B, T, V]; with a cache, after the tokens that it holds.

        shared: what parts leave for each other, and for a loss; by default one of its own.
        """
        shared = self._own(shared)
        return self.logits(self.hidden(tokens_BT, cache, shared), shared)

    def _own(self, shared: Shared | None) -> Shared | None:
        """Return what the parts of one pass share: what is given, or else anew where any does."""
        return Shared(self.auxiliaries) if shared is None and self.shares else shared

    def logits(self, x: Tensor, shared: Shared | None = None) -> Tensor:
        """Map [..., D] that `hidden` gives to logits [..., V]."""
        last = {"shared": self._own(shared)} if self._take_shared[2] else {}
        return self.head(x, self.embedding.tokens.weight, **last)

    def hidden(
        self,
        tokens_BT: Tensor,
        cache: KeyValueCache | None = None,
        shared: Shared | None = None,
    ) -> Tensor:
        """Return [B, T, D], what the head reads."""
        starts, reads = ((), ()) if cache is None else ((cache.length,), (cache,))
        shared = self._own(shared)
        if shared is not None:
            shared.tokens = tokens_BT
        first, last = ({"shared": shared} if take else {} for take in self._take_shared[:2])
        x_BTD = self.embedding(tokens_BT, *starts, **first)
        for block in self.blocks:
            x_BTD = block(x_BTD, *reads, shared=shared) if block.shares else block(x_BTD, *reads)
        if cache is not None:
            cache.advance(tokens_BT.shape[1])
        x_BTD = self.final_norm(x_BTD, **last)
        if shared is not None:
            shared.hidden = x_BTD
        return x_BTD

    @property
    def can_cache(self) -> bool:
        """True if it can read with a cache: own parts and the attention say so (`parts`)."""
        return type(self) is GPT and self._are_cached


def _require_trainable(model: GPT) -> None:
    """Raise ParibusError for a parameter that cannot be trained as all others are."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            problem = "has no shape yet; give its layer all sizes"
        elif not parameter.requires_grad:
            problem = (
                "is frozen, and everything that is a parameter is trained; make it a buffer, or "
                "keep it with a group of training.optimizer.groups whose learning_rate_factor is 0"
            )
        elif parameter.dtype != torch.float32 or not parameter.numel():
            kind = str(parameter.dtype).removeprefix("torch.")
            problem = (
                f"has {parameter.numel()} numbers of type {kind}; a parameter is of float32 and "
                "has one at least"
            )
        else:
            continue
        raise ParibusError(f"parameter '{name}' of an own module {problem}")


def study_positions(model: ModelConfig, place: str, folder: Path | None = None) -> nn.Module | None:
    """Return the study's positions, if they stand at `place`, "embedding" or "attention".

    An attention or embedding of the user's own calls it to have the positions of the study.
    """
    own = own_part(model, "positions", folder or Path.cwd())
    named = find_part("positions", model.positions.kind, "model.positions.kind").module
    found: Any = own or named(model)
    if getattr(found, "stands", None) not in PLACES:
        raise ParibusError(
            f"model.modules.positions = '{model.modules.positions}' does not say where it stands: "
            f"give the class stands = one of {', '.join(map(repr, PLACES))}"
        )
    if takes_shared(found.forward):
        raise ParibusError(
            f"model.modules.positions = '{model.modules.positions}' asks for shared, which "
            "positions are not given; leave it to the embedding or the attention around them"
        )
    return found if found.stands == place else None


def _norm(model: ModelConfig, site: str, folder: Path) -> Any:
    own = own_part(model, site, folder)
    norm = find_part("norms", model.norm.kind, "model.norm.kind").module
    return own or norm(model, model.d_model, model.norm.eps, model.bias)


def _attention(model: ModelConfig) -> Part:
    return find_part("attentions", model.attention.kind, "model.attention.kind")
