"""Building a model, and how large it is: in parameters, and in operations of training.

Floating-point operations are what a budget in FLOPs is made of. Counted are matrix products,
forward and backward, a multiplication and an addition each: 6 for every weight that a token is
multiplied with, and 12 n_layer d_model seq_len for attention scores and mixing, the whole square of
them, as causal masks save nothing here (Kaplan et al. 2020, section 2.1; Chowdhery et al. 2022,
appendix B). Norms, activations, softmax, tables that are looked up and the optimizer are left out:
they are a few per cent of a model worth training. Of other attentions and the user's own modules no
formula is known; their products are counted by PyTorch, which gives the same numbers for the parts
that the formula is of.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from paribus.engine.model.gpt import GPT
from paribus.engine.model.parts import ModelConfig
from paribus.engine.model.shared import Shared
from paribus.engine.model.uses import parameter_uses
from paribus.engine.setting import Setting
from paribus.engine.setting.architecture import CAUSAL

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
    """Build a `GPT` whose weights mean nothing yet; `initial_parameters` gives those of a seed.

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
    """Count trainable parameters, a tied head once."""
    model = build_model(setting, vocab_size, folder, device="meta")
    return sum(parameter.numel() for parameter in model.parameters())


def weight_shapes(
    setting: Setting, vocab_size: int, folder: Path | None = None
) -> dict[str, tuple[int, int]]:
    """Return {parameter name: (outputs N, inputs K)} of every matrix that multiplies tokens.

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


class Flops(NamedTuple):
    """Operations of training per token; None where nobody knows.

    `by` is what gave them: the formula, or PyTorch's counter where there are own modules.
    """

    per_token: int | None
    by: Literal["formula", "counter"]

    @property
    def record(self) -> dict[str, int | str]:
        """Its record; empty where nobody knows."""
        return {} if self.per_token is None else {"per_token": self.per_token, "by": self.by}


def training_flops(setting: Setting, vocab_size: int, folder: Path | None = None) -> Flops:
    """Return operations per training token, by the formula where it holds, or by the counter."""
    if not setting.model.modules.named and setting.model.attention.kind == CAUSAL:
        return Flops(training_flops_per_token(setting, vocab_size, folder), "formula")
    return Flops(counted_flops_per_token(setting, vocab_size, folder), "counter")


def training_flops_per_token(setting: Setting, vocab_size: int, folder: Path | None = None) -> int:
    """Return them by the formula. An own module is taken to use each of its matrices once."""
    model = setting.model
    weights = sum(N * K for N, K in weight_shapes(setting, vocab_size, folder).values())
    return 6 * weights + 12 * model.n_layer * model.d_model * setting.data.seq_len


def counted_flops_per_token(
    setting: Setting, vocab_size: int, folder: Path | None = None
) -> int | None:
    """Count them in one window without values; None where a module needs values."""
    for functions in (_uncompiled(), contextlib.nullcontext()):
        # A module that the first cannot count may use the compiler itself, so it is there then.
        with contextlib.suppress(Exception), functions:
            return _count(setting, vocab_size, folder) // setting.data.seq_len
    return None


def _count(setting: Setting, vocab_size: int, folder: Path | None) -> int:
    """Count operations of one window, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode  # few need it

    model = build_model(setting, vocab_size, folder, device="meta").train()
    tokens_BT = torch.zeros(1, setting.data.seq_len, dtype=torch.int64, device="meta")
    # Attention written out: the counter knows no rule for the CPU's fused kernel.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        shared = Shared(model.auxiliaries) if model.shares else None
        logits_BTV = model(tokens_BT, shared=shared)
        objective = F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT.flatten())
        if shared is not None:  # other heads, and auxiliary losses, are learned from as well
            seen = shared.seen()
            for one in (*seen.outputs.values(), *seen.auxiliary.values()):
                objective = objective + one.sum()
        objective.backward()
    return counter.get_total_flops()


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Let functions for tensors without values be called without importing PyTorch's compiler.

    They are written in Python, and hidden from the compiler: before its first call each imports the
    compiler, in two seconds, to be told not to be compiled (`torch._disable_dynamo`). Here a
    stand-in tells them, and is forgotten afterwards. Where the compiler is imported already,
    nothing changes.
    """
    name, told = "torch._dynamo", list[Any]()
    if name in sys.modules:
        yield
        return

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        told.append(function)
        return function

    stand_in = types.ModuleType(name)
    setattr(stand_in, "disable", disable)  # noqa: B010
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]
        torch.__dict__.pop("_dynamo", None)
        for function in told:
            function.__dict__.pop("__dynamo_disable", None)
