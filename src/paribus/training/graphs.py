"""A step as one launch: on a GPU its kernels are recorded once, as a CUDA graph, and replayed.

A step of a small model is some thousand kernels of a few microseconds; launched one by one from
Python they take longer than they run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

from paribus.training.feed import Inputs


class Step(Protocol):
    """What `Graphs` calls: it reads `inputs`, writes to tensors of its own in place, and returns
    others. It asks nothing of the host that depends on a tensor's values."""

    def __call__(self, inputs: Inputs, kind: Any) -> Any: ...


# (function, inputs) -> (what repeats the recorded kernels, what the function returned)
Record = Callable[[Callable[[Inputs], Any], Inputs], tuple[Callable[[], None], Any]]


class Graphs:
    """Calls `step(inputs, kind)`; with `record`, its later calls of each kind are replays.

    The first call of a kind runs as it is written, which also gives libraries the chance to set
    themselves up. What a replay returns is overwritten by the next replay of that kind. A kind that
    cannot be recorded keeps running as it is written.
    """

    def __init__(self, step: Step, record: Record | None) -> None:
        self._step = step
        self._record = record
        self._met: set[Hashable] = set()
        self._plain: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[Inputs, Callable[[], None], Any]] = {}

    def __call__(self, inputs: Inputs, kind: Hashable) -> Any:
        if self._record is None or kind in self._plain or kind not in self._met:
            self._met.add(kind)
            return self._step(inputs, kind)
        if kind not in self._recorded:
            static = Inputs(*(part.clone() for part in inputs))
            try:
                replay, outputs = self._record(lambda given: self._step(given, kind), static)
            except RuntimeError as error:
                reason = str(error).strip().splitlines()[0]
                warnings.warn(
                    f"a training step cannot be recorded as a CUDA graph ({reason}); it runs "
                    "kernel by kernel, which is slower",
                    stacklevel=2,
                )
                self._plain.add(kind)
                return self._step(inputs, kind)
            self._recorded[kind] = (static, replay, outputs)
        static, replay, outputs = self._recorded[kind]
        for place, value in zip(static, inputs, strict=True):
            place.copy_(value)
        replay()
        return outputs


def cuda_recorder() -> Record:
    """Records CUDA graphs that share one pool of memory: they are replayed one after the other."""
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[Inputs], Any], inputs: Inputs) -> tuple[Callable[[], None], Any]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs = function(inputs)
        return graph.replay, outputs

    return record
