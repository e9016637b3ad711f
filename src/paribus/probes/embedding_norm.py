"""Mean L2 norm at the first block's input: what the arms of the flagship change."""

from __future__ import annotations

from torch import Tensor

from paribus.model import StepView
from paribus.probes import probe


@probe("embedding_norm", unit="L2", modules=("embedding",))
def embedding_norm(step: StepView) -> Tensor:
    """[R] mean over batch and positions of |x_BTD| entering block 1."""
    x_RBTD = step.outputs["embedding"]
    return x_RBTD.float().norm(dim=-1).mean(dim=(1, 2))
