"""Reductions shared by probes: norms of parameter groups, quantiles, and values by token class.

Axes: R replicas, G parameter groups, N values, C token classes, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import TOKEN_CLASSES
from paribus.engine.observation import Labels
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting

GROUPS = ("embedding", "positions", "embedding norm", "attention", "mlp", "norms", "other")
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
SPREAD = ("mean", *QUANTILES)
CLASSES = ("all", *TOKEN_CLASSES)


def group_of(name: str) -> str:
    """Map a parameter name to its group in GROUPS.

    "embedding" is the token embedding, which is also the head if tied.
    """
    if name.startswith("embedding.positions."):
        return "positions"
    if name.startswith("embedding.norm."):
        return "embedding norm"
    if name.startswith("embedding."):
        return "embedding"
    if ".attention." in name:
        return "attention"
    if ".mlp." in name:
        return "mlp"
    return "norms" if "norm." in name else "other"


def groups(
    rows: Rows, corrections: Mapping[str, float] | None = None
) -> Iterator[list[tuple[Tensor, float]]]:
    """Yield a list of (values [R, n], divisor) pairs for each group in GROUPS.

    The list is empty for a group without parameters. `corrections` are divisors keyed by parameter
    name, 1 by default.
    """
    names: dict[str, dict[float, list[str]]] = {group: {} for group in GROUPS}
    for name in rows:
        divisor = (corrections or {}).get(name, 1.0)
        names[group_of(name)].setdefault(divisor, []).append(name)
    for by_divisor in names.values():
        yield [(piece, c) for c, group in by_divisor.items() for piece in rows.pieces(group)]


def group_norms(rows: Rows) -> Tensor:
    """Return the L2 norm of each parameter group, [R, G], with NaN for empty groups."""
    columns = []
    for pieces in groups(rows):
        each = [torch.linalg.vector_norm(piece, dim=1) for piece, _ in pieces]
        columns.append(torch.stack(each).square().sum(dim=0) if each else absent(rows))
    return torch.stack(columns, dim=1).sqrt()


def absent(rows: Rows, *shape: int) -> Tensor:
    """Create a tensor of NaN with shape [R, *shape], for values that do not exist."""
    return rows.flat.new_full((len(rows.flat), *shape), torch.nan)


def quantiles(values: Tensor) -> Tensor:
    """Return the quantiles in QUANTILES of `values` [..., N], as [..., Q], ignoring NaN.

    The result is NaN if all values are NaN. This is equivalent to `torch.nanquantile`, but on a
    CPU, values are sorted with NumPy, which is nine times as fast as PyTorch.
    """
    at = _at(values.device, values.dtype)
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return values.nanquantile(at, dim=-1).movedim(0, -1)
    ordered = torch.from_numpy(np.sort(values.detach().numpy(), axis=-1))  # NaN comes last
    n_known = ordered.isnan().logical_not_().sum(dim=-1, keepdim=True)
    ranks = (at * (n_known - 1)).clamp_(min=0)
    below = ranks.long()
    low, high = (ordered.gather(-1, place) for place in (below, ranks.ceil().long()))
    return low.lerp_(high, ranks - below)


def spread(values: Tensor) -> Tensor:
    """Return the mean and quantiles of `values` [..., N], as [..., 1 + Q], ignoring NaN."""
    return torch.cat([values.nanmean(dim=-1, keepdim=True), quantiles(values)], dim=-1)


@cache
def _at(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the quantile levels as a tensor [Q], cached to avoid synchronizing copies."""
    return torch.tensor(list(QUANTILES.values()), device=device, dtype=dtype)


def by_class(values_RN: Tensor, classes_RN: Tensor) -> Tensor:
    """Mask values by token class, and return [R, 1 + C, N].

    The first row contains all values. The row of each class has NaN for tokens of other classes.
    """
    kinds_C1 = torch.arange(len(TOKEN_CLASSES), device=classes_RN.device)[:, None]
    of_class_RCN = classes_RN[:, None, :] == kinds_C1
    return torch.cat(
        [values_RN[:, None], torch.where(of_class_RCN, values_RN[:, None], torch.nan)], dim=1
    )


def depths(setting: Setting) -> Labels:
    """Return the labels of the tensors in `StepView.block_inputs`."""
    return (*blocks(setting), "output")


def blocks(setting: Setting) -> Labels:
    """Return the labels of the blocks: `block 1`, `block 2`, ..."""
    return tuple(f"block {i + 1}" for i in range(setting.model.n_layer))
