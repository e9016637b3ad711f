"""Contract of the user's own parts, tried before anything is trained.

Axes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from paribus.engine.model.gpt import GPT, PLACES
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed

ROWS = 2
IN_BLOCKS = {"block_norm": "attention_norm", "attention": "attention", "mlp": "mlp"}
BATCH = "batch, time, and the width of the model (of a head, the vocabulary)"
ADDED = "a vector of the width of the model for each position, which is added"
ANY = torch.float32, torch.float64, torch.bfloat16, torch.float16

# (what it gave, what it was given) -> what is wrong with that, or nothing
Check = Callable[[Any, tuple[Any, ...]], str]


@torch.no_grad()
def require_parts(model: GPT, setting: Setting, vocab_size: int) -> None:
    """Read a window, and raise ParibusError for an own part that fails, gives another shape or
    type, or writes to a parameter or to what it is given. The model is left as it was.
    """
    T, D = setting.data.seq_len, setting.model.d_model
    tried = []
    for site, part in _own_parts(model, setting):
        check = _tensor((ROWS, T, D), BATCH)
        if site == "head":
            check = _tensor((ROWS, T, vocab_size), BATCH, ANY)
        elif site == "positions":
            check = _turned if part.stands == "attention" else _tensor((T, D), ADDED)
        path = f"model.modules.{site} = '{setting.model.modules.named[site]}'"
        part.forward = _watched(part.forward, path, check, model)
        tried.append(part)
    mode = model.training
    try:
        device = next(model.parameters()).device
        model.eval()(torch.zeros(ROWS, T, dtype=torch.long, device=device))
    finally:
        model.train(mode)
        for part in tried:
            del part.forward


def unused_positions(model: GPT, setting: Setting) -> list[str]:
    """Return a line where the positions that a study names stand in no part of the model.

    An attention or embedding of the user's own has them only where it builds them.
    """
    named, kind = setting.model.modules.named, setting.model.positions.kind
    others = [site for site in ("attention", "embedding") if site in named]
    is_chosen = "positions" in named or (kind == "rotary" and "attention" in named)
    if (
        not is_chosen
        or not others
        or any(getattr(m, "stands", "") in PLACES for m in model.modules())
    ):
        return []
    where = "model.modules.positions" if "positions" in named else "model.positions.kind"
    what = named.get("positions", kind)
    own = ", ".join(f"model.modules.{site} = '{named[site]}'" for site in others)
    return [
        f"{where} = '{what}' has no effect: {own} does not build it (see "
        "paribus.extend.study_positions)"
    ]


def _own_parts(model: GPT, setting: Setting) -> Iterator[tuple[str, nn.Module]]:
    """Each of the user's own parts; of all blocks', the first one's."""
    for site in setting.model.modules.named:
        if site in IN_BLOCKS:
            yield site, model.get_submodule(f"blocks.0.{IN_BLOCKS[site]}")
        elif site != "positions":
            yield site, model.get_submodule(site)
        else:  # wherever an attention or embedding, of the user's own too, has put them
            found = (m for m in model.modules() if getattr(m, "stands", None) in PLACES)
            yield from ((site, part) for part in list(found)[:1])


def _tensor(
    shape: tuple[int, ...], meaning: str, dtypes: tuple[torch.dtype, ...] = (torch.float32,)
) -> Check:
    """Return a check for this shape, and one of these types."""

    def check(found: Any, given: tuple[Any, ...]) -> str:
        if not isinstance(found, Tensor) or tuple(found.shape) != shape:
            return f"gives {_told(found)} and must give a tensor of shape {list(shape)}: {meaning}"
        return "" if found.dtype in dtypes else _of_type(found, dtypes[0])

    return check


def _turned(found: Any, given: tuple[Any, ...]) -> str:
    """Check positions in the attention: they must give queries and keys as they were."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        return f"gives {_told(found)} and must give a pair: the queries and the keys"
    for name, ours, theirs in zip(("queries", "keys"), found, given[:2], strict=True):
        if not isinstance(ours, Tensor) or ours.shape != theirs.shape:
            return f"gives {name} {_told(ours)} and must give {list(theirs.shape)}, as they were"
        if ours.dtype != theirs.dtype:
            return _of_type(ours, theirs.dtype)
    return ""


def _told(found: object) -> str:
    return str(list(found.shape)) if isinstance(found, Tensor) else type(found).__name__


def _of_type(found: Tensor, wanted: torch.dtype) -> str:
    ours, theirs = (str(dtype).removeprefix("torch.") for dtype in (found.dtype, wanted))
    return f"gives a tensor of type {ours} where it must give {theirs}, as all of the model is"


def _watched(
    forward: Callable[..., Any], path: str, check: Check, model: GPT
) -> Callable[..., Any]:
    """`forward`, which raises ParibusError for whatever is wrong."""

    def call(*args: Any, **more: Any) -> Any:
        seen = [(f"the parameter '{name}'", tensor) for name, tensor in model.named_parameters()]
        # A head is given a parameter too, which is called by its name.
        seen += [("what it is given", x) for x in args if isinstance(x, Tensor)]
        versions = [tensor._version for _, tensor in seen]
        shapes = ", ".join(str(list(x.shape)) for x in args if isinstance(x, Tensor))
        try:
            with blamed(f"{path} fails where it is given {shapes}"):
                found = forward(*args, **more)
        except ParibusError as error:
            if path in str(error):
                raise
            raise ParibusError(f"{path}: {error}") from error
        problem = check(found, args)
        for (name, tensor), version in zip(seen, versions, strict=True):
            if tensor._version != version:
                problem = problem or f"writes to {name}; let it write to a copy"
        if problem:
            raise ParibusError(f"{path} {problem}")
        return found

    return call
