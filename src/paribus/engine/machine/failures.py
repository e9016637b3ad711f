"""Failures of a machine in the middle of a run, in words that say what to do."""

from __future__ import annotations

import torch

KEPT = "finished trials and checkpoints are kept"
# What PyTorch says: of a GPU that fails (without a type of its own before 2.8), and of main memory.
GPU_WORDS = ("CUDA error", "CUDA driver error", "No CUDA GPUs are available")
MEMORY_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def machine_failure(error: BaseException) -> str | None:
    """One line for an error that is the machine's, not ours; None for any other."""
    words = str(error).strip()
    first = words.splitlines()[0] if words else type(error).__name__
    out_of_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    if out_of_memory or any(there in words for there in MEMORY_WORDS):
        return (
            f"out of memory ({first[:120]}); {KEPT}: run again with fewer --workers, or delete the "
            "folder checkpoints/ of the results and run again with a smaller --stack"
        )
    gpu_error = getattr(torch, "AcceleratorError", ())
    if isinstance(error, gpu_error) or any(there in words for there in GPU_WORDS):
        return f"the GPU failed or is gone ({first[:120]}); {KEPT}: run again to continue"
    return None
