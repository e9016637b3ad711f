"""What the user's own parts must give, tried before anything is trained.

Axes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paribus.errors import ParibusError
from paribus.model.gpt import GPT
from paribus.study import Setting

ROWS = 2
IN_BLOCKS = {"block_norm": "attention_norm", "attention": "attention", "mlp": "mlp"}


@torch.no_grad()
def require_parts(model: GPT, setting: Setting, vocab_size: int) -> None:
    """Read a window, and raise ParibusError for an own part that fails or gives another shape.

    Positions of the user's own are tried with what they stand in. The model is left as it was.
    """
    T, D = setting.data.seq_len, setting.model.d_model
    shapes = {"head": (ROWS, T, vocab_size)}
    tried = []
    for site, part in _own_parts(model, setting):
        path = f"model.modules.{site} = '{setting.model.modules.named[site]}'"
        part.forward = _watched(part.forward, path, shapes.get(site, (ROWS, T, D)))
        tried.append(part)
    mode = model.training
    try:
        device = next(model.parameters()).device
        model.eval()(torch.zeros(ROWS, T, dtype=torch.long, device=device))
    finally:
        model.train(mode)
        for part in tried:
            del part.forward


def _own_parts(model: GPT, setting: Setting) -> Iterator[tuple[str, nn.Module]]:
    """Each of the user's own parts; of all blocks', the first one's."""
    for site in setting.model.modules.named:
        if site in IN_BLOCKS:
            yield site, model.get_submodule(f"blocks.0.{IN_BLOCKS[site]}")
        elif site != "positions":
            yield site, model.get_submodule(site)


def _watched(
    forward: Callable[..., Any], path: str, shape: tuple[int, ...]
) -> Callable[..., Tensor]:
    def call(*args: Any) -> Tensor:
        try:
            found = forward(*args)
        except ParibusError:
            raise
        except Exception as error:
            given = ", ".join(str(list(x.shape)) for x in args if isinstance(x, Tensor))
            raise ParibusError(
                f"{path} fails where it is given {given}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, Tensor) or tuple(found.shape) != shape:
            what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ParibusError(
                f"{path} gives {what} and must give a tensor of shape {list(shape)}: batch, time, "
                "and the width of the model (of a head, the vocabulary)"
            )
        return found

    return call
