"""Floating-point operations of training, per token: what a budget in FLOPs is made of.

What counts are matrix products, forward and backward, a multiplication and an addition each: 6 for
every weight that a token is multiplied with, and 12 n_layer d_model seq_len for attention scores
and mixing, the whole square of them, as causal masks save nothing here (Kaplan et al. 2020, section
2.1; Chowdhery et al. 2022, appendix B). Norms, activations, softmax, tables that are looked up and
the optimizer are left out: they are a few per cent of a model worth training.

Of the user's own modules no formula is known; their products are counted by PyTorch instead, which
gives the same numbers for the parts that ship.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from paribus.engine.model.build import build_model, weight_shapes
from paribus.study import Setting


class Flops(NamedTuple):
    """Operations of training per token; None where nobody knows.

    `by` is what gave them: the formula, or PyTorch's counter where there are own modules.
    """

    per_token: int | None
    by: Literal["formula", "counter"]

    @property
    def record(self) -> dict[str, int | str]:
        """What the records say of it; empty where nobody knows."""
        return {} if self.per_token is None else {"per_token": self.per_token, "by": self.by}


def training_flops(setting: Setting, vocab_size: int, folder: Path | None = None) -> Flops:
    """Operations per training token, by the formula or, with own modules, by the counter."""
    if not setting.model.modules.named:
        return Flops(training_flops_per_token(setting, vocab_size, folder), "formula")
    return Flops(counted_flops_per_token(setting, vocab_size, folder), "counter")


def training_flops_per_token(setting: Setting, vocab_size: int, folder: Path | None = None) -> int:
    """By the formula above. A user's own module is taken to use each of its matrices once."""
    model = setting.model
    weights = sum(N * K for N, K in weight_shapes(setting, vocab_size, folder).values())
    return 6 * weights + 12 * model.n_layer * model.d_model * setting.data.seq_len


def counted_flops_per_token(
    setting: Setting, vocab_size: int, folder: Path | None = None
) -> int | None:
    """By PyTorch's counter, for one window without values; None where a module needs values."""
    for functions in (_uncompiled(), contextlib.nullcontext()):
        # A module that the first cannot count may use the compiler itself, so it is there then.
        with contextlib.suppress(Exception), functions:
            return _count(setting, vocab_size, folder) // setting.data.seq_len
    return None


def _count(setting: Setting, vocab_size: int, folder: Path | None) -> int:
    """Operations of one window, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode  # few need it

    model = build_model(setting, vocab_size, folder, device="meta").train()
    tokens_BT = torch.zeros(1, setting.data.seq_len, dtype=torch.int64, device="meta")
    # Attention written out: the counter knows no rule for the CPU's fused kernel.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        F.cross_entropy(model(tokens_BT).flatten(0, 1), tokens_BT.flatten()).backward()
    return counter.get_total_flops()


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """PyTorch's functions for tensors without values, called without importing its compiler.

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
