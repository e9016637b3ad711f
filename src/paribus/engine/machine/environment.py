"""Software and hardware environment: description, PyTorch setup, memory and failures."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Any, Literal

import torch

from paribus.digests import package_digest
from paribus.engine.ops import identity
from paribus.engine.records import PACKAGES
from paribus.errors import ParibusError
from paribus.programs.machine import processor
from paribus.results import package_versions

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def environment(device: torch.device, stack: int) -> dict[str, Any]:
    """Describe the software and hardware of this process, as stored in environment.json.

    Args:
        device: device of the trial.
        stack: number of replicas that are trained together.
    """
    return {
        "code": package_digest(),
        "packages": package_versions(PACKAGES),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor("model name"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "kernels": identity() if device.type == "cpu" else "torch",
        "stack": stack,
    }


def choose_device(name: str, number: int = 0) -> torch.device:
    """Return the device called `name`, or the best available device for "auto".

    `number` is the index of the worker, which selects a GPU round-robin. Raises ParibusError if the
    device is not available.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, devices in available.items() if devices)
    if not available[name]:
        raise ParibusError(f"device '{name}' is not available on this machine; set --device auto")
    return torch.device(f"cuda:{number % torch.cuda.device_count()}" if name == "cuda" else name)


def prepare(device: torch.device) -> None:
    """Configure PyTorch for training in a process that uses only `device`."""
    # One thread: results do not depend on how many cores a machine has, and several workers with a
    # thread each beat one worker with several threads.
    torch.set_num_threads(1)
    # The C library returns large freed blocks to the system at once, and every step would request
    # them again, page by page. `free_unused` returns them.
    if mallopt := _c_function("mallopt"):
        mallopt(_TRIM_THRESHOLD, 2**30)
        mallopt(_MMAP_THRESHOLD, 2**25)  # the largest that it takes
    if device.type == "cuda":
        # Graphs, streams and events are made on the current device, wherever tensors are.
        torch.cuda.set_device(device)
        torch.use_deterministic_algorithms(True, warn_only=True)
        # cuDNN's attention sums its gradients in no fixed order; flash attention has one
        # (`paribus.engine.ops.functional.ordered_attention`).
        torch.backends.cuda.enable_cudnn_sdp(False)
        # It would cost a pass over every tensor; nothing here reads what it has not written.
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def free_unused(device: torch.device) -> None:
    """Release unused memory: PyTorch's cache on a GPU, or free heap memory on a CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif trim := _c_function("malloc_trim"):
        trim(0)


def _c_function(name: str) -> Callable[..., int] | None:
    """Return a glibc function, or None if it is unavailable."""
    if platform.libc_ver()[0] != "glibc":
        return None
    return getattr(ctypes.CDLL(None), name, None)


def count_devices(device: torch.device) -> int:
    """Return the number of available GPUs if `device` is a GPU, otherwise 1."""
    return torch.cuda.device_count() if device.type == "cuda" else 1


def native_precision(device: torch.device) -> Literal["float32", "bfloat16"]:
    """Return "bfloat16" if `device` supports bfloat16 matrix products natively, else "float32".

    A CPU supports them with AVX512-BF16, AMX or ARM's BF16 extension, through oneDNN. The result
    for MPS is "float32", because PyTorch does not report whether it supports bfloat16.
    """
    is_native = False
    if device.type == "cuda":
        is_native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu" and torch.backends.mkldnn.is_available():
        capabilities = torch.cpu.get_capabilities()
        is_native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return "bfloat16" if is_native else "float32"


KEPT = "finished trials and checkpoints are kept"
# What PyTorch says of main memory that is used up, and cuBLAS of a GPU's.
MEMORY_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
# Devices and checkpointing are not part of a study's digest.
LESS = (
    "with fewer --workers, more devices (--set resources.devices_per_trial=N) or --set "
    "resources.checkpoint_activations=true, or delete the folder checkpoints/ of the results and "
    "use a smaller --stack"
)


def machine_failure(error: BaseException) -> str | None:
    """Return a one-line message for out-of-memory and GPU errors, or None for other errors."""
    words = str(error).strip() or type(error).__name__
    first = words.splitlines()[0][:120]
    out_of_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    if out_of_memory or any(phrase in words for phrase in MEMORY_WORDS):
        return f"out of memory ({first}); {KEPT}; run the command again {LESS}"
    if isinstance(error, torch.AcceleratorError):
        return f"the GPU failed or was lost ({first}); {KEPT}; run the command again to continue"
    return None
