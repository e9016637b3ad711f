"""What a model, and each of its parts, is built from."""

from __future__ import annotations

from typing import Self

from paribus.study import Setting
from paribus.study.architecture import Model


class ModelConfig(Model):
    """The model's part of a setting, and the sizes that come from elsewhere; frozen.

    Every part is built as `Part(model)` with one of these: `model.d_model`, `model.n_head`,
    `model.attention.window` and all other keys of `[model]` in a study.
    """

    seq_len: int
    """Tokens in a window: no position is beyond."""
    vocab_size: int
    dropout: float = 0.0
    layer: int | None = None
    """The number of the block that the part is in, from 0; None outside of blocks."""

    @classmethod
    def of(cls, setting: Setting, vocab_size: int) -> Self:
        """What `setting` says of the model."""
        return cls.model_construct(
            **dict(setting.model),
            seq_len=setting.data.seq_len,
            vocab_size=vocab_size,
            dropout=setting.training.dropout,
        )

    def in_block(self, layer: int) -> Self:
        """The same for the parts of a block."""
        return self.model_copy(update={"layer": layer})
