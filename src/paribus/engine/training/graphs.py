"""Capture and replay of training steps as CUDA graphs.

A small model's step has about a thousand kernels of a few microseconds each. Launching a kernel
from Python takes longer than running it, so all kernels of a step are replayed with one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from paribus.engine.training.prefetch import Inputs
from paribus.errors import ParibusError

GRAPHED_STEPS = 3  # the first step of a kind runs eagerly, the second is captured
# A captured step reads its inputs, updates its own tensors in place, and returns other tensors. It
# must not read values of tensors on the host.
Step = Callable[[Inputs, Any], Any]
# (function, inputs) -> (function that replays the captured kernels, result of the function)
Record = Callable[[Callable[[Inputs], Any], Inputs], tuple[Callable[[], None], Any]]


class Graphs:
    """Training step runner that captures and replays steps if `record` is not None.

    The first step of each kind runs eagerly, so that libraries can initialize; the second is
    captured. Each replay overwrites the results of the previous step.
    """

    def __init__(self, record: Record | None) -> None:
        self._record = record
        self._seen: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[Inputs, Callable[[], None], Any]] = {}

    def __call__(self, step: Step, inputs: Inputs, kind: Hashable) -> Any:
        """Run or replay `step(inputs, kind)`. Raises ParibusError if it cannot be captured."""
        key = kind, inputs.windows.shape  # the batch may grow
        if self._record is None or key not in self._seen:
            self._seen.add(key)
            return step(inputs, kind)
        if key not in self._recorded:
            static = Inputs(*(part.clone() for part in inputs))
            replay, outputs = self._record(lambda given: step(given, kind), static)
            self._recorded[key] = static, replay, outputs
        static, replay, outputs = self._recorded[key]
        for target, value in zip(static, inputs, strict=True):
            target.copy_(value)
        replay()
        return outputs


def cuda_recorder() -> Record:
    """Return a function that captures CUDA graphs in one shared memory pool."""
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[Inputs], Any], inputs: Inputs) -> tuple[Callable[[], None], Any]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool):
                outputs = function(inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            while isinstance(error.__context__, RuntimeError):  # the cause precedes the abort
                error = error.__context__
            raise ParibusError(
                f"a training step cannot be captured as a CUDA graph "
                f"({str(error).splitlines()[0]}), possibly because a custom module reads a "
                "tensor value on the host; use --eager, which is slower",
                code="own_code",
            ) from error
        return graph.replay, outputs

    return record
