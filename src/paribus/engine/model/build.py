"""Construction of models, and counts of their parameters and training FLOPs."""

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
    """Build a `GPT` with placeholder weights, to be replaced by those of `initial_parameters`.

    Module constructors use PyTorch's global generator. It is seeded with `constructor_seed` and
    restored afterwards, so that the placeholder weights are reproducible. On the "meta" device,
    the model has shapes but no weights.
    """
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(constructor_seed)
        return GPT(ModelConfig.from_setting(setting, vocab_size, folder))


@torch.no_grad()
def load_parameters(model: GPT, weights: Mapping[str, np.ndarray]) -> None:
    """Copy `weights`, keyed by parameter name, into `model`, leaving its buffers unchanged.

    Raises ValueError if names are missing or unknown.
    """
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        names = sorted(parameters.keys() ^ weights.keys())
        raise ValueError(f"missing or unknown parameter names in the weights: {names}")
    for name, parameter in parameters.items():
        parameter.copy_(torch.from_numpy(weights[name]))


def count_parameters(setting: Setting, vocab_size: int, folder: Path | None = None) -> int:
    """Return a model's number of parameters, counting tied weights once."""
    model = build_model(setting, vocab_size, folder, device="meta")
    return sum(parameter.numel() for parameter in model.parameters())


def counted_flops_per_token(
    setting: Setting, vocab_size: int, folder: Path | None = None
) -> int | None:
    """Count the FLOPs per token of a forward and backward pass, using the "meta" device.

    Returns None if a custom module fails on that device, which has no tensor values.
    """
    from torch.utils.flop_counter import FlopCounterMode  # imports PyTorch's compiler, a second

    model = build_model(setting, vocab_size, folder, device="meta").train()
    tokens_BT = torch.zeros(1, setting.data.seq_len, dtype=torch.int64, device="meta")
    try:
        # The counter does not support the fused attention for CPUs.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            shared = Shared(model.auxiliaries)
            logits_BTV = model(tokens_BT, shared=shared)
            objective = F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT.flatten())
            sum(shared.losses(logits_BTV).values(), objective).backward()
    except Exception:  # whatever a custom module raises
        return None
    return counter.get_total_flops() // setting.data.seq_len
