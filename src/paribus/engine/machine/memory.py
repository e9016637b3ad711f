"""Memory: how much there is, the most that was taken, and how large a stack it holds."""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paribus.engine.cost import FLOAT32, has_formula, memory, state_numbers
from paribus.engine.data import Dataset
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.measurements import Fit
from paribus.engine.training import GRAPHED_STEPS
from paribus.errors import ParibusError
from paribus.study import Study, step_code

Result = TypeVar("Result")
PROCESS, SYSTEM = Path("/proc/self"), Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def require_room(study: Study, arm: str, vocab_size: int, device: torch.device) -> None:
    """Raise ParibusError, before a model is made, where one replica of `arm` cannot fit.

    A model of user-defined parts is not judged.
    """
    free, setting = free_memory(device), study.setting(arm)
    if free is None or not has_formula(setting):
        return
    parameters, state = state_numbers(setting, vocab_size, study.folder)
    needed = FLOAT32 * (parameters + state)
    if needed > free:
        raise ParibusError(
            f"arm '{arm}' has {parameters:,} parameters, whose weights, gradients, moments and "
            f"averages take {needed / 2**30:,.2f} GiB; {free / 2**30:,.2f} GiB are free: use a "
            "smaller model, or a machine with more memory",
            code="system",
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a new allocation could take; None where the system does not tell."""
    if device.type == "cuda":
        # What PyTorch has reserved and does not use is free to it.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type != "cpu" or not SYSTEM.is_file():
        return None
    system = _kilobytes(SYSTEM, "MemAvailable:")
    limits = [system] if system is not None else []
    try:
        limit = int((CONTAINER / "memory.max").read_text(encoding="utf-8"))
        limits.append(limit - int((CONTAINER / "memory.current").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        pass  # no container, or one without a limit ("max")
    return min(limits, default=None)


def keep_freed() -> None:
    """Let this process keep memory that it frees, as the next step wants it again.

    The C library gives large pieces back to the system at once, and every step would take them
    anew, page by page. `free_unused` gives them back. Nothing where the library is not glibc.
    """
    mallopt = _c_function("mallopt")
    if mallopt is not None:
        for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            any(mallopt(option, size) for size in (2**30, 2**25))  # the largest that it takes


def free_unused(device: torch.device) -> None:
    """Give back what PyTorch has reserved on a GPU and does not use, or this process on a CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif (trim := _c_function("malloc_trim")) is not None:
        trim(0)


def _c_function(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None on a system that has another C library."""
    if platform.libc_ver()[0] != "glibc":
        return None
    return getattr(ctypes.CDLL(None), name, None)


def most_held(action: Callable[[], Result], device: torch.device) -> tuple[Result, int | None]:
    """Return what `action` gives, and the most bytes of tensors that it held at once.

    On a CPU those of every storage that an operation reads or writes are counted, and not what an
    operation takes within itself; None on a device that does not tell.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = action()
        torch.cuda.synchronize(device)
        return result, torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return action(), None
    with _Held() as storages:
        result = action()
    return result, storages.most


class _Held(TorchDispatchMode):
    """Follows the storages of tensors that operations read and write, for as long as they live."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled here, and PyTorch would import its compiler for it, in 1.5 s."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        seen = [v for v in tree_leaves((args, result)) if isinstance(v, torch.Tensor)]
        for tensor in seen:
            if tensor.device.type == "cpu" and not tensor.is_sparse:
                storage = tensor.untyped_storage()
                reference = StorageWeakRef(storage)
                self._live[reference.cdata] = (reference, storage.nbytes())
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._live.values()))
        return result


def host_memory() -> int:
    """Return the most bytes that this process had resident so far; 0 where the system does not
    tell.
    """
    # The portable count, below, starts with the size of the process that started this one.
    peak = _kilobytes(PROCESS / "status", "VmHWM:")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows has no such count
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_memory(device: torch.device) -> int | None:
    """Return the most bytes of tensors that a CUDA device held for us so far; None elsewhere."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def _kilobytes(path: Path, field: str) -> int | None:
    """Return the bytes that the line `field` of a file of /proc states in kilobytes."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), None)


SHARE = 0.8  # of the free memory: allocators round up, and probes with a cadence come later
# The formula lacks recorded graphs, probes and gaps of the allocator: a stack that takes this share
# of the memory fits; a larger one is built and measured, in seconds for each arm.
SURE_SHARE = 0.25


def largest_stack(
    study: Study,
    arm: str,
    dataset: Dataset,
    device: torch.device,
    wanted: int,
    workers: int,
    *,
    graphs: bool = True,
) -> Fit:
    """Return how many of `wanted` replicas of `arm` fit, where `workers` share a GPU's memory.

    On other devices all of them are said to fit. Raises ParibusError where not even one does.
    """
    if device.type != "cuda":
        return Fit(wanted, "")
    free = free_memory(device)
    assert free is not None
    usable = SHARE * free / workers
    setting = study.setting(arm)
    # A head width without a fused kernel writes attention scores out, which `memory` leaves out.
    if has_formula(setting) and not step_code(study, arm) and setting.model.head_width % 8 == 0:
        replica = memory(setting, dataset.vocab_size, study.folder)
        if wanted * replica.total <= SURE_SHARE * usable:
            return Fit(wanted, "")
    two = _most(study, arm, dataset, device, 2, graphs)
    three = _most(study, arm, dataset, device, 3, graphs)
    each = max(three - two, 1)
    first = two - each
    words = (
        f"each takes {each / 2**30:.2f} GiB, and {free / workers / 2**30:.2f} GiB are free for "
        "each worker"
    )
    if first > usable:
        raise ParibusError(
            f"not enough memory for one replica of arm '{arm}' ({words}); state fewer --workers or "
            "a smaller training.batch_size"
        )
    fit = 1 + int((usable - first) // each)
    return Fit(wanted, "") if wanted <= fit else Fit(fit, words)


def _most(
    study: Study, arm: str, dataset: Dataset, device: torch.device, R: int, graphs: bool
) -> int:
    """Bytes that R replicas need at most, beyond what is in use without them."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_reserved(device)
    seeds = study.seeds[:1] * R
    stack = build_stack(study, study.setting(arm), seeds, dataset, device, graphs=graphs)
    stack.go_to_largest_batch()
    for _ in range(1 + GRAPHED_STEPS):
        stack.step()
    return torch.cuda.max_memory_reserved(device) - before  # recorded steps keep theirs
