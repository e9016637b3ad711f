"""The embedding stage: what enters the first block. Every arm of the flagship differs here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.dropout import Dropout
from paribus.engine.model.parts import find_part


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
