"""In what matrix products are computed, by what `training.precision` calls it."""

from __future__ import annotations

import torch

PRODUCTS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def lower_products(precision: str) -> torch.dtype | None:
    """What autocast rounds operands to; None in float32, where it is not wanted."""
    return None if precision == "float32" else PRODUCTS[precision]
