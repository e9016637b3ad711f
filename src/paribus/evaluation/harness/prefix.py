"""Running a model on from a prefix that many rows share, so that it is computed once.

Only for models that are the house's own in every part: another module may look at its input in
ways that this walk through the blocks does not know. Those are run over whole rows.

Axes: B rows, P prefix, T time, D d_model, H heads, K channels of a head, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paribus.model.embedding import Embedding
from paribus.model.gpt import GPT, MLP, Attention, Block, LayerNorm


@dataclass(frozen=True)
class Prefix:
    """What later positions need of earlier ones.

    Attributes:
        tokens: the tokens so far, [B, P].
        keys, values: of every block, [B, H, P, K].
    """

    tokens: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def rows(self, index: Tensor) -> Prefix:
        """A prefix with these rows of this one, in this order."""
        return Prefix(
            self.tokens[index],
            tuple(key[index] for key in self.keys),
            tuple(value[index] for value in self.values),
        )


def can_share(model: nn.Module) -> bool:
    """Whether `extend` computes what `model` computes."""
    return (
        type(model) is GPT
        and type(model.embedding) is Embedding
        and type(model.final_norm) is LayerNorm
        and all(
            isinstance(block, Block)
            and type(block.attention) is Attention
            and type(block.mlp) is MLP
            and type(block.attention_norm) is LayerNorm
            and type(block.mlp_norm) is LayerNorm
            for block in model.blocks
        )
    )


def extend(model: GPT, tokens_BT: Tensor, prefix: Prefix | None) -> tuple[Tensor, Prefix]:
    """([B, T, D] what the head reads at the new positions, the prefix with them)."""
    P = 0 if prefix is None else prefix.tokens.shape[1]
    T = tokens_BT.shape[1]
    all_tokens = tokens_BT if prefix is None else torch.cat([prefix.tokens, tokens_BT], dim=1)
    # The embedding stage works position by position and costs little: run over all of them, it
    # needs no word for where the new ones start.
    x_BTD = model.embedding(all_tokens)[:, P:]
    mask_TS = torch.ones(T, P + T, dtype=torch.bool, device=tokens_BT.device).tril(P)
    keys, values = [], []
    for number, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        attention, mlp = cast(Attention, block.attention), cast(MLP, block.mlp)
        q_BHTK, k_BHTK, v_BHTK = _project(attention, block.attention_norm(x_BTD))
        if prefix is not None:
            k_BHTK = torch.cat([prefix.keys[number], k_BHTK], dim=2)
            v_BHTK = torch.cat([prefix.values[number], v_BHTK], dim=2)
        keys.append(k_BHTK)
        values.append(v_BHTK)
        mixed = F.scaled_dot_product_attention(
            q_BHTK,
            k_BHTK,
            v_BHTK,
            attn_mask=None if prefix is None else mask_TS,
            is_causal=prefix is None,
        )
        x_BTD = x_BTD + attention.out(mixed.transpose(1, 2).flatten(2))
        x_BTD = x_BTD + mlp(block.mlp_norm(x_BTD))
    return model.final_norm(x_BTD), Prefix(all_tokens, tuple(keys), tuple(values))


def _project(attention: Attention, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [B, H, T, K] each."""
    B, T, D = x_BTD.shape
    qkv = attention.qkv(x_BTD).view(B, T, 3, attention.n_head, D // attention.n_head)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v
