"""Data-parallel training of one replica in several processes (`torch.distributed`).

Every rank has a copy of the model and a share of each batch. Gradients and losses are averaged over
the ranks, so that all ranks perform the same optimizer step. Rank 0 writes the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

# The other ranks wait while rank 0 evaluates. The parent process notices if a rank dies.
PATIENCE = timedelta(days=30)
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True)
class Ranks:
    """Process group that runs one trial.

    Attributes:
        rank: Rank of this process.
        size: Number of processes.
    """

    rank: int
    size: int

    @classmethod
    def meet(cls, rank: int, size: int, device: torch.device, store: Store) -> Ranks:
        """Join the process group, waiting for all other ranks.

        Args:
            rank: rank of this process.
            size: number of processes.
            device: device of this process.
            store: key-value store that all ranks share.
        """
        backend = BACKENDS[device.type]
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        return cls(rank, size)

    @staticmethod
    def part() -> None:
        """Destroy the process group if it is initialized."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which makes decisions and writes records."""
        return self.rank == 0

    def rows(self, n: int) -> slice:
        """Return this rank's slice of an n-row batch, where n is a multiple of `size`."""
        share = n // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def average(self, *tensors: Tensor) -> None:
        """Replace each tensor in place by its mean over all ranks."""
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor.div_(self.size)

    def from_first(self, numbers: Sequence[int]) -> list[int]:
        """Broadcast the integers that rank 0 passes, and return them on every rank."""
        message = torch.tensor(numbers, dtype=torch.int64)
        dist.broadcast(message, src=0)
        return message.tolist()
