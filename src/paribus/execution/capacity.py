"""How large a stack the memory holds, measured: a step of one replica, and a step of two."""

from __future__ import annotations

import gc

import torch

from paribus.data import Dataset
from paribus.errors import ParibusError
from paribus.execution.memory import free_memory, memory_in_use, most_memory
from paribus.execution.trial import build_stack
from paribus.study import Study

SHARE = 0.8  # of the free memory: allocators round up, and recorded steps keep their outputs


def largest_stack(
    study: Study, arm: str, dataset: Dataset, device: torch.device, wanted: int, workers: int
) -> tuple[int, str]:
    """(how many of `wanted` replicas of `arm` fit, why no more), where `workers` share the memory.

    Where the system does not tell, all of them are said to fit. Raises ParibusError where not even
    one does.
    """
    free = free_memory(device)
    one = _most(study, arm, dataset, device, 1)
    two = _most(study, arm, dataset, device, 2)
    if free is None or one is None or two is None:
        return wanted, ""
    usable, each = SHARE * free / workers, max(two - one, 1)
    words = (
        f"each takes {each / 2**30:.2f} GiB, and {free / workers / 2**30:.2f} GiB are free for "
        "each worker"
    )
    if one > usable:
        raise ParibusError(
            f"not enough memory for one replica of arm '{arm}' ({words}); state fewer --workers or "
            "a smaller training.batch_size"
        )
    fit = 1 + int((usable - one) // each)
    return (wanted, "") if wanted <= fit else (fit, words)


def _most(study: Study, arm: str, dataset: Dataset, device: torch.device, R: int) -> int | None:
    """Bytes that a step of R replicas needs at most, beyond what is in use without them."""
    gc.collect()
    before = memory_in_use(device)
    stack = build_stack(study, study.setting(arm), study.seeds[:1] * R, dataset, device)
    stack.step()
    most = most_memory(device)
    return None if before is None or most is None else most - before
