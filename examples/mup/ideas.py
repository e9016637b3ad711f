"""muP (Yang et al. 2022, Tensor Programs V) for AdamW and tied embeddings: a head whose logits do
not grow with the width, and the coordinate check.

A width of m times BASE takes, besides this head, hidden matrices that start with 1 / sqrt(m) of the
standard deviation and learn at 1 / m of the rate; `study.toml` says both with keys.
"""

import torch
from torch import nn

from paribus.extend import Drawing, probe

BASE = 32  # the width of which rates are stated


class Head(nn.Module):
    """Logits by the token matrix, times BASE / width (Table 8: the output multiplier)."""

    def __init__(self, model):
        super().__init__()
        self.multiplier = BASE / model.d_model

    def forward(self, x, tokens):
        return (x * self.multiplier) @ tokens.T


def parts(setting):
    """Return the places whose coordinates are looked at."""
    blocks = (f"block {i}" for i in range(setting.model.n_layer))
    return ("embedding", *blocks, "logits")


@probe(
    "coordinates",
    unit="1",
    parts=parts,
    statistics=("rms",),
    modules=("embedding", "blocks.*", "head"),
    drawings=(
        Drawing(
            "{}/rms",
            "panels",
            "Coordinate check: flat over widths, or growing with them",
            "root mean square of a coordinate",
            in_text=True,
        ),
    ),
)
def coordinates(step):
    """Return [R, parts, 1], the root mean square of what leaves each place."""
    logits = step.outputs["head"].float()
    logits = logits - logits.mean(dim=-1, keepdim=True)  # which a softmax does not see
    seen = [*step.block_inputs, logits]
    sizes = [x.float().flatten(1).square().mean(dim=1).sqrt() for x in seen]
    return torch.stack(sizes, dim=1)[..., None]
