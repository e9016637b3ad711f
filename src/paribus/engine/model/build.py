"""Building a model, and how large it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.gpt import GPT
from paribus.engine.model.uses import parameter_uses
from paribus.study import Setting

# How constructors draw, besides by `torch.nn.init`.
DRAWS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        *("bernoulli_", "cauchy_", "exponential_", "geometric_"),
        *("log_normal_", "normal_", "random_", "uniform_"),
    )
)


class ShapesAlone(TorchFunctionMode):
    """For constructors on the device "meta", where PyTorch has some functions in Python alone.

    Their first call imports its compiler, which takes seconds. So nothing is drawn into a tensor
    that has no values.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in DRAWS or getattr(func, "__module__", "") == torch.nn.init.__name__:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def build_model(
    setting: Setting,
    vocab_size: int,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    constructor_seed: int = 0,
) -> GPT:
    """A `GPT` whose weights mean nothing yet; `initial_parameters` gives those of a seed.

    PyTorch's constructors draw from the global generator; that is undone here, and seeded, so that
    a parameter which keeps its constructor's value is the same every time. On the device "meta"
    the model has shapes and no weights.
    """
    is_meta = torch.device(device).type == "meta"
    shapes = ShapesAlone() if is_meta else contextlib.nullcontext()
    with torch.random.fork_rng(devices=[]), torch.device(device), shapes:
        torch.manual_seed(constructor_seed)
        return GPT(ModelConfig.of(setting, vocab_size), folder)


@torch.no_grad()
def load_parameters(model: GPT, weights: Mapping[str, np.ndarray]) -> None:
    """Give `model` the weights of a trial, by name; buffers stay what its constructor made them.

    Raises ValueError where names differ.
    """
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        raise ValueError(f"other parameters: {sorted(parameters.keys() ^ weights.keys())}")
    for name, parameter in parameters.items():
        parameter.copy_(torch.from_numpy(weights[name]))


def count_parameters(setting: Setting, vocab_size: int, folder: Path | None = None) -> int:
    """Trainable parameters, a tied head counted once."""
    model = build_model(setting, vocab_size, folder, device="meta")
    return sum(parameter.numel() for parameter in model.parameters())


def weight_shapes(
    setting: Setting, vocab_size: int, folder: Path | None = None
) -> dict[str, tuple[int, int]]:
    """{parameter name: (outputs N, inputs K)} of every matrix that each token is multiplied with.

    Tables are looked up, not multiplied, but for that of tokens as a tied head. A user's own
    module is taken to use each of its matrices once.
    """
    model = build_model(setting, vocab_size, folder, device="meta")
    uses = parameter_uses(model)
    head = "embedding.tokens.weight" if setting.model.head.tied else None
    return {
        name: (parameter.numel() // parameter.shape[-1], parameter.shape[-1])
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and (not uses[name].table or name == head)
    }
