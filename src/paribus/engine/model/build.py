"""Building a model, and counting its parameters and the floating-point operations of training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from paribus.engine.model.gpt import GPT
from paribus.engine.model.parts import ModelConfig
from paribus.engine.model.shared import Shared
from paribus.engine.setting import Setting


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
        return GPT(ModelConfig.of(setting, vocab_size, folder))


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
            sum(shared.losses(logits_BTV).values(), objective).backward()
    except Exception:  # whatever a custom module raises
        return None
    return counter.get_total_flops() // setting.data.seq_len
