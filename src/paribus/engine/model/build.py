"""Building a model, and its size: parameters, and floating-point operations of training.

FLOPs are those of matrix products, forward and backward: 6 per weight that a token is multiplied
with, and 12 n_layer d_model seq_len for attention, without credit for the causal mask (Kaplan et
al. 2020, section 2.1; Chowdhery et al. 2022, appendix B). Norms, activations, softmax, lookups and
the optimizer are not counted: they are a few per cent of a model worth training. For other
attentions and custom modules there is no formula, and PyTorch's counter counts the same products.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from paribus.engine.model.gpt import GPT
from paribus.engine.model.parts import ModelConfig
from paribus.engine.model.shared import Shared
from paribus.engine.model.uses import parameter_uses
from paribus.engine.setting import Setting
from paribus.engine.setting.architecture import CAUSAL


def build_model(
    setting: Setting,
    vocab_size: int,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    constructor_seed: int = 0,
) -> GPT:
    """Build a `GPT` with meaningless weights; `initial_parameters` returns those of a seed.

    Constructors draw from PyTorch's global generator, which is seeded here and restored, so that a
    parameter that keeps its constructor's value is reproducible. On the device "meta", the model
    has shapes but no weights.
    """
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(constructor_seed)
        return GPT(ModelConfig.of(setting, vocab_size), folder)


@torch.no_grad()
def load_parameters(model: GPT, weights: Mapping[str, np.ndarray]) -> None:
    """Set the parameters of `model` by name; buffers keep their values.

    Raises ValueError for other names.
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
    """Return {parameter name: (outputs N, inputs K)} of the matrices that multiply tokens.

    Tables are looked up instead, except for a tied head. Each matrix of a custom module counts
    once.
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
    """Training operations per token: None if unknown, by the formula or by PyTorch's counter."""

    per_token: int | None
    by: Literal["formula", "counter"]

    @property
    def record(self) -> dict[str, int | str]:
        """Entry of a trial's record; empty if unknown."""
        return {} if self.per_token is None else {"per_token": self.per_token, "by": self.by}


def training_flops(setting: Setting, vocab_size: int, folder: Path | None = None) -> Flops:
    """Return operations per training token, by the formula where it holds, else counted."""
    if not setting.model.modules.named and setting.model.attention.kind == CAUSAL:
        return Flops(training_flops_per_token(setting, vocab_size, folder), "formula")
    return Flops(counted_flops_per_token(setting, vocab_size, folder), "counter")


def training_flops_per_token(setting: Setting, vocab_size: int, folder: Path | None = None) -> int:
    """Return operations per training token by the formula."""
    model = setting.model
    weights = sum(N * K for N, K in weight_shapes(setting, vocab_size, folder).values())
    return 6 * weights + 12 * model.n_layer * model.d_model * setting.data.seq_len


def counted_flops_per_token(
    setting: Setting, vocab_size: int, folder: Path | None = None
) -> int | None:
    """Count operations in one window without values; None if a custom module needs values."""
    from torch.utils.flop_counter import FlopCounterMode  # imports PyTorch's compiler, a second

    model = build_model(setting, vocab_size, folder, device="meta").train()
    tokens_BT = torch.zeros(1, setting.data.seq_len, dtype=torch.int64, device="meta")
    try:
        # The counter has no rule for the fused attention of CPUs.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            shared = Shared(model.auxiliaries)
            logits_BTV = model(tokens_BT, shared=shared)
            objective = F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT.flatten())
            seen = shared.seen()
            for term in (*seen.outputs.values(), *seen.auxiliary.values()):
                objective = objective + term.sum()
            objective.backward()
    except Exception:  # whatever a custom module raises
        return None
    return counter.get_total_flops() // setting.data.seq_len
