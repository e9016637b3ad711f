"""A short measured warm-up in a worker: what a step, an evaluation and the memory cost."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from paribus.data import Dataset
from paribus.execution.record import evaluate_on
from paribus.execution.trial import build_stack
from paribus.model import build_model, count_parameters, training_flops_per_token
from paribus.study import Setting, Study

STEPS = 3
LONGEST_STEP_SECONDS = 20.0  # a model whose step takes longer is not tried out
LARGEST_STATE_BYTES = 4 * 2**30
BYTES_PER_PARAMETER = 16  # float32 weight, gradient and two moments


def measure(study: Study, arm: str, dataset: Dataset, device: torch.device) -> dict[str, Any]:
    """Seconds of a step (the median) and of an evaluation, and memory in bytes, of one replica.

    A model that is too large to try gets `measured` = False and lower bounds.
    """
    setting = study.setting(arm)
    size = model_size(study, arm, dataset)
    flops_per_second = _matrix_product_speed(setting, device)
    least_seconds = size["flops_per_token"] * setting.tokens_per_step / flops_per_second
    state_bytes = BYTES_PER_PARAMETER * size["parameters"]
    if least_seconds > LONGEST_STEP_SECONDS or state_bytes > LARGEST_STATE_BYTES:
        # Evaluation is a forward pass: a third of the operations of training.
        forward = size["flops_per_token"] / 3
        return {
            "measured": False,
            "step_seconds": least_seconds,
            "evaluation_seconds": forward * len(dataset.validation) / flops_per_second,
            "memory_bytes": state_bytes,
        }
    stack = build_stack(study, setting, study.seeds[:1], dataset, device)
    stack.step()
    steps = [_seconds(stack.step, device) for _ in range(STEPS)]

    model = build_model(setting, dataset.vocab_size, study.folder).to(device)
    some = dataset.validation[: setting.tokens_per_step + 1]
    evaluation = _seconds(lambda: evaluate_on(model, dataset, some, setting.data.seq_len), device)
    return {
        "measured": True,
        "step_seconds": float(np.median(steps)),
        "evaluation_seconds": evaluation * len(dataset.validation) / len(some),
        "memory_bytes": _memory_bytes(device),
    }


def model_size(study: Study, arm: str, dataset: Dataset) -> dict[str, int]:
    """`parameters` and training `flops_per_token`; allocates no weights."""
    setting = study.setting(arm)
    return {
        "parameters": count_parameters(setting, dataset.vocab_size, study.folder),
        "flops_per_token": training_flops_per_token(setting, dataset.vocab_size, study.folder),
    }


def _matrix_product_speed(setting: Setting, device: torch.device) -> float:
    """Floating-point operations per second of the model's largest kind of product, float32."""
    rows = min(setting.tokens_per_step, 2048)
    d_model, wide = setting.model.d_model, setting.model.mlp_ratio * setting.model.d_model
    a, b = torch.ones(rows, d_model, device=device), torch.ones(d_model, wide, device=device)
    seconds = [_seconds(lambda: a @ b, device) for _ in range(10)]
    return 2 * rows * d_model * wide / min(seconds)


def _seconds(action: Any, device: torch.device) -> float:
    began = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _memory_bytes(device: torch.device) -> int:
    """The most that was in use so far: on the GPU, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has no such count
        return 0
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
