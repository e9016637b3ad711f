"""Processes that train one model together: one for each device, called by their rank.

What they agree on goes through here: sums over all of them, parts of each put together, and what
rank 0 decides. torchrun starts them (`engine.execution.workers.ranks`) and says by the environment
who is who; tests and benchmarks may be one rank alone, without it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from paribus.engine.observation import Alone

# Between tasks ranks wait for what rank 0 is asked: who starts them decides how long.
PATIENCE = timedelta(days=30)
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True)
class Ranks(Alone):
    """The processes of one trial, and which of them this is.

    Attributes:
        rank, size: this one, of so many.
        device: what it computes on.
        mesh: all of their devices, along one axis.
        talk: what they agree by, apart from what devices send each other; on the host.
        files: the same for what is written while training goes on.
    """

    rank: int
    size: int = field()  # without a default, which `Alone` has
    device: torch.device
    mesh: DeviceMesh
    talk: dist.ProcessGroup
    files: dist.ProcessGroup

    @classmethod
    def meet(cls, device: torch.device) -> Ranks:
        """Meet all others; waits for them. The environment says where, as torchrun sets it."""
        dist.init_process_group(BACKENDS[device.type], timeout=PATIENCE)
        return cls._of_all(device)

    @classmethod
    def alone(cls, device: torch.device) -> Ranks:
        """Be the only one, in a process that nobody has told of others."""
        store = HashStore()
        dist.init_process_group(
            BACKENDS[device.type], store=store, rank=0, world_size=1, timeout=PATIENCE
        )
        return cls._of_all(device)

    @classmethod
    def _of_all(cls, device: torch.device) -> Ranks:
        size = dist.get_world_size()
        mesh = init_device_mesh(device.type, (size,))
        groups: list[Any] = [
            dist.new_group(backend="gloo", timeout=PATIENCE, group_desc=name)
            for name in ("talk", "files")
        ]
        return cls(dist.get_rank(), size, device, mesh, *groups)

    @property
    def is_first(self) -> bool:
        """Whether this one writes, and speaks for all."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Return this rank's of `n` rows, of which every rank has as many."""
        each = n // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sums of `values` over all ranks."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def mean(self, values: Tensor) -> Tensor:
        """Return the means of `values`, each of which is of as many numbers on every rank."""
        return self.sum(values) / self.size

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest of each of `values` over all ranks; NaN where any is."""
        found = self._reduced(values.nan_to_num(nan=-torch.inf), dist.ReduceOp.MAX)
        lost = self._reduced(values.isnan().float(), dist.ReduceOp.MAX)
        return found.masked_fill(lost > 0, torch.nan)

    def _reduced(self, values: Tensor, how: Any) -> Tensor:
        found = values.detach().clone(memory_format=torch.contiguous_format)
        if self.size > 1:
            dist.all_reduce(found, op=how)
        return found

    def together(self, values: Tensor, dim: int) -> Tensor:
        """Join what every rank has along `dim`, in their order; they may have other numbers."""
        if self.size == 1:
            return values
        first = values.detach().movedim(dim, 0).contiguous()
        sizes = [0] * self.size
        dist.all_gather_object(sizes, len(first), group=self.talk)
        most = max(sizes)
        padded = first.new_zeros((most, *first.shape[1:]))
        padded[: len(first)] = first
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        joined = torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)])
        return joined.movedim(0, dim)

    def decided(self, *wishes: bool) -> tuple[bool, ...]:
        """Return what rank 0 wishes, on every rank."""
        if self.size == 1:
            return wishes
        said = torch.tensor(wishes, dtype=torch.uint8)
        dist.broadcast(said, src=0, group=self.talk)
        return tuple(bool(one) for one in said.tolist())

    def all_agree(self, one: bool) -> bool:
        """Return whether it is so on every rank."""
        if self.size == 1:
            return one
        said = torch.tensor([one], dtype=torch.uint8)
        dist.all_reduce(said, op=dist.ReduceOp.MIN, group=self.talk)
        return bool(said.item())

    def told(self, words: str) -> str:
        """Return on every rank what rank 0 says."""
        if self.size == 1:
            return words
        content = words.encode() if self.is_first else b""
        n = torch.tensor([len(content)])
        dist.broadcast(n, src=0, group=self.talk)
        said = torch.zeros(int(n), dtype=torch.uint8)
        if self.is_first:
            said.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        if len(said):
            dist.broadcast(said, src=0, group=self.talk)
        return bytes(said.numpy()).decode()

    def of_all(self, value: Any) -> list[Any]:
        """Return what every rank has to say, in their order; plain JSON types."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, json.dumps(value), group=self.talk)
        return [json.loads(one) for one in found]

    def wait(self) -> None:
        """Until every rank is here."""
        dist.barrier(group=self.talk)


def leave() -> None:
    """Part from the other ranks."""
    if dist.is_initialized():
        dist.destroy_process_group()


def local_rank() -> int:
    """Return which of this machine's devices this process has, as torchrun says."""
    return int(os.environ.get("LOCAL_RANK", "0"))
