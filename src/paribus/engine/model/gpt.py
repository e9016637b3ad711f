"""The model, whole: a decoder-only Transformer, by default a GPT-3-style one.

Radford et al. 2019 (GPT-2), Brown et al. 2020 (GPT-3); Pre-LN: Xiong et al. 2020. The module
describes one replica and knows nothing of stacks, arms, or how it is initialised. Its parts are
files of their own (`parts`), and any of them may be the user's.

Axes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paribus.engine.kernels import pre_norm_block
from paribus.engine.kernels.linear_maps import residual
from paribus.engine.kernels.pre_norm_block import BlockParameters, MapParameters, NormParameters
from paribus.engine.model.attention import Attention
from paribus.engine.model.config import ModelConfig
from paribus.engine.model.custom_modules import module_class
from paribus.engine.model.dropout import Dropout
from paribus.engine.model.embedding import Embedding
from paribus.engine.model.head import Head
from paribus.engine.model.key_value_cache import KeyValueCache
from paribus.engine.model.mlps import Ungated
from paribus.engine.model.norms.layernorm import LayerNorm
from paribus.engine.model.norms.rmsnorm import RMSNorm
from paribus.engine.model.parts import find_part, own_part
from paribus.errors import ParibusError

PLACES = ("embedding", "attention", "nowhere")


class Block(nn.Module):
    """Residual block: x + attention(norm(x)), then x + mlp(norm(x)) (pre-norm, Xiong et al. 2020);
    or norm(x + attention(x)), then norm(x + mlp(x)) (post-norm, Vaswani et al. 2017)."""

    undecayed = ("attention_norm", "mlp_norm")

    def __init__(self, model: ModelConfig, folder: Path) -> None:
        super().__init__()
        self.is_pre = model.norm.placement == "pre"
        self.attention_norm = _norm(model, "block_norm", folder)
        attention = own_part(model, "attention", folder)
        self.attention: Any = attention or Attention(
            model, study_positions(model, "attention", folder)
        )
        self.attention_dropout = Dropout(model.dropout)
        self.mlp_norm = _norm(model, "block_norm", folder)
        mlp = find_part("mlps", model.mlp.kind, "model.mlp.kind").module
        self.mlp: Any = own_part(model, "mlp", folder) or mlp(model)
        self.mlp_dropout = Dropout(model.dropout)
        # What our own parts read they multiply first; another may want all of float32.
        if self.is_pre and model.modules.block_norm is None:
            self.attention_norm.lowers = attention is None
            self.mlp_norm.lowers = model.modules.mlp is None
        self._inner = tuple(self.modules())[1:]
        # A part of the user's own may inherit from ours, and computes something else.
        own = (model.modules.attention, model.modules.mlp, model.modules.block_norm)
        self._is_ours = (
            self.is_pre
            and not any(own)
            and type(self.attention) is Attention
            and type(self.attention_norm) in (LayerNorm, RMSNorm)
            and type(self.mlp_norm) in (LayerNorm, RMSNorm)
            and isinstance(self.mlp, Ungated)
            and self.mlp.kind is not None
        )

    def forward(self, x_BTD: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """x_BTD -> [B, T, D]; with a cache, T new tokens after those that it holds."""
        if self._is_ours and cache is None and self._is_unwatched(x_BTD.shape[1]):
            whole = self._parameters_of_all()
            if pre_norm_block.is_for(x_BTD, whole):
                return pre_norm_block.pre_norm_block(x_BTD, whole)
        reads = () if cache is None else (cache,)
        if self.is_pre:
            y_BTD = self.attention(self.attention_norm(x_BTD), *reads)
            x_BTD = residual(x_BTD, self.attention_dropout(y_BTD))
            return residual(x_BTD, self.mlp_dropout(self.mlp(self.mlp_norm(x_BTD))))
        y_BTD = self.attention(x_BTD, *reads)
        x_BTD = self.attention_norm(residual(x_BTD, self.attention_dropout(y_BTD)))
        return self.mlp_norm(residual(x_BTD, self.mlp_dropout(self.mlp(x_BTD))))

    def _is_unwatched(self, T: int) -> bool:
        """Whether nobody looks inside, nothing is dropped, and attention over T is one kernel: the
        block can then be asked at once, for the same bits."""
        drops = self.training and self.mlp_dropout.p > 0
        return (
            not drops
            and self.attention.is_whole(T)
            and not any(one._forward_hooks or one._forward_pre_hooks for one in self._inner)
            and not any(one._backward_hooks or one._backward_pre_hooks for one in self._inner)
        )

    def _parameters_of_all(self) -> BlockParameters:
        attention, mlp = self.attention, self.mlp
        norms = [
            NormParameters(norm.weight, getattr(norm, "bias", None), norm.eps, norm.centred)
            for norm in (self.attention_norm, self.mlp_norm)
        ]
        qkv, out, up, down = (
            MapParameters(one.weight, one.bias)
            for one in (attention.qkv, attention.out, mlp.up, mlp.down)
        )
        return BlockParameters(norms[0], qkv, out, norms[1], up, down, attention.n_head, mlp.kind)


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
            self.final_norm.lowers = model.modules.head is None
        tokens_VD = self.embedding.tokens.weight
        shape = (model.vocab_size, model.d_model)
        if isinstance(self.head, Head) and model.head.tied and tokens_VD.shape != shape:
            raise ParibusError(
                f"model.modules.embedding = '{model.modules.embedding}': its `tokens` have the "
                f"shape {tuple(tokens_VD.shape)}, and a tied head takes {shape}, vocabulary and "
                "width of the model; say model.head.tied = false, or give a head of your own"
            )
        _require_trainable(self)
        self._uncached = [
            site
            for site, path in model.modules.named.items()
            if not getattr(module_class(path, f"model.modules.{site}", folder), "cached", False)
        ]

    def forward(self, tokens_BT: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """tokens_BT int64 -> logits [B, T, V]; with a cache, after the tokens that it holds."""
        return self.logits(self.hidden(tokens_BT, cache))

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] what `hidden` gives -> [..., V]."""
        return self.head(x, self.embedding.tokens.weight)

    def hidden(self, tokens_BT: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """[B, T, D] what the head reads."""
        if cache is None:
            x_BTD = self.embedding(tokens_BT)
            for block in self.blocks:
                x_BTD = block(x_BTD)
        else:
            x_BTD = self.embedding(tokens_BT, cache.length)
            for block in self.blocks:
                x_BTD = block(x_BTD, cache)
            cache.advance(tokens_BT.shape[1])
        return self.final_norm(x_BTD)

    @property
    def can_cache(self) -> bool:
        """Whether it can read with a cache: a user's own part says so itself (`parts`)."""
        return type(self) is GPT and not self._uncached


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
    """The study's positions, if they stand at `place`, "embedding" or "attention".

    What an attention or embedding of the user's own builds to have the positions of the study.
    """
    own = own_part(model, "positions", folder or Path.cwd())
    named = find_part("positions", model.positions.kind, "model.positions.kind").module
    found: Any = own or named(model)
    if getattr(found, "stands", None) not in PLACES:
        raise ParibusError(
            f"model.modules.positions = '{model.modules.positions}' does not say where it stands: "
            f"give the class stands = one of {', '.join(map(repr, PLACES))}"
        )
    return found if found.stands == place else None


def _norm(model: ModelConfig, site: str, folder: Path) -> Any:
    own = own_part(model, site, folder)
    norm = find_part("norms", model.norm.kind, "model.norm.kind").module
    return own or norm(model, model.d_model, model.norm.eps, model.bias)
