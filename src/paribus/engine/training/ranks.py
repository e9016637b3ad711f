"""Data parallelism: processes that train one replica together (`torch.distributed`).

Every rank has the whole model and its rows of each batch. Gradients and losses are averaged over
the ranks, so that every rank makes the same optimizer step. Rank 0 records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

# While rank 0 evaluates, the others wait. Whoever started the ranks notices one that dies.
PATIENCE = timedelta(days=30)
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True)
class Ranks:
    """The processes of one trial.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
    """

    rank: int
    size: int

    @classmethod
    def meet(cls, rank: int, size: int, device: torch.device, store: Store) -> Ranks:
        """Wait until all ranks have called this with the same `store`, and return them."""
        backend = BACKENDS[device.type]
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        return cls(rank, size)

    @staticmethod
    def part() -> None:
        """Leave the other ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """True for rank 0, which writes records and decides."""
        return self.rank == 0

    def rows(self, n: int) -> slice:
        """Return this rank's rows of a batch of `n`, a multiple of `size`."""
        share = n // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def average(self, *tensors: Tensor) -> None:
        """Replace each tensor by its mean over all ranks."""
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor.div_(self.size)

    def from_first(self, numbers: Sequence[int]) -> list[int]:
        """Return the values of rank 0 on every rank."""
        message = torch.tensor(numbers, dtype=torch.int64)
        dist.broadcast(message, src=0)
        return message.tolist()
