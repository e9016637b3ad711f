"""How large a stack the memory holds, measured: steps of two replicas, and of three.

Two and three, as one replica goes another way through the trainer than many do.
"""

from __future__ import annotations

import gc

import torch

from paribus.engine.data import Dataset
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.measurements import Fit
from paribus.engine.machine.memory import free_memory, memory_in_use, most_memory
from paribus.engine.training import GRAPHED_STEPS
from paribus.errors import ParibusError
from paribus.study import Study

SHARE = 0.8  # of the free memory: allocators round up, and probes with a cadence come later


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
    """How many of `wanted` replicas of `arm` fit, where `workers` share the memory.

    Where the system does not tell, all of them are said to fit. Raises ParibusError where not even
    one does.
    """
    free = free_memory(device)
    two = _most(study, arm, dataset, device, 2, graphs)
    three = _most(study, arm, dataset, device, 3, graphs)
    if free is None or two is None or three is None:
        return Fit(wanted, "")
    usable, each = SHARE * free / workers, max(three - two, 1)
    one = two - each
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
    return Fit(wanted, "") if wanted <= fit else Fit(fit, words)


def _most(
    study: Study, arm: str, dataset: Dataset, device: torch.device, R: int, graphs: bool
) -> int | None:
    """Bytes that R replicas need at most, beyond what is in use without them."""
    gc.collect()
    before = memory_in_use(device)
    seeds = study.seeds[:1] * R
    stack = build_stack(study, study.setting(arm), seeds, dataset, device, graphs=graphs)
    for _ in range(1 + GRAPHED_STEPS if device.type == "cuda" else 1):
        stack.step()
    most = most_memory(device)
    return None if before is None or most is None else most - before
