"""The embedding stage: what enters the first block. Every arm of the flagship differs here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paribus.model.dropout import Dropout
from paribus.model.embedding_norms import embedding_norm_class
from paribus.study import Setting


class Embedding(nn.Module):
    """tokens_BT -> norm(E_tok(t) + E_pos(p)), or norm(E_tok(t)) + E_pos(p): [B, T, D].

    The first token stands at position `start`.
    """

    undecayed = ("norm",)

    def __init__(self, setting: Setting, vocab_size: int) -> None:
        super().__init__()
        d_model = setting.model.d_model
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(setting.data.seq_len, d_model)
        self.norm = embedding_norm_class(setting.model.embedding.norm)(setting)
        self.norm_at = setting.model.embedding.norm_at
        self.dropout = Dropout(setting.training.dropout)

    def forward(self, tokens_BT: Tensor, start: int = 0) -> Tensor:
        tokens_BTD = self.tokens(tokens_BT)
        end = start + tokens_BT.shape[-1]
        positions_TD = self.positions(torch.arange(start, end, device=tokens_BT.device))
        if self.norm_at == "tokens":
            return self.dropout(self.norm(tokens_BTD) + positions_TD)
        return self.dropout(self.norm(tokens_BTD + positions_TD))
