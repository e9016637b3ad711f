"""CUDA graphs: a GPU records the kernels of a step once and replays them with one launch.

A step of a small model has about a thousand kernels of a few microseconds; launching each from
Python takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from paribus.engine.training.prefetch import Inputs
from paribus.errors import ParibusError

GRAPHED_STEPS = 3  # of each kind, the first runs eagerly and the second is recorded
# A recorded step reads its inputs, writes to its own tensors in place and returns others. It must
# not use the values of tensors on the host.
Step = Callable[[Inputs, Any], Any]
# (function, inputs) -> (replays the recorded kernels, result of the function)
Record = Callable[[Callable[[Inputs], Any], Inputs], tuple[Callable[[], None], Any]]


class Graphs:
    """Calls `step(inputs, kind)`; with `record`, later calls of each kind are replays.

    The first call of a kind runs eagerly, so that libraries can initialize. The result of a replay
    is overwritten by the next.
    """

    def __init__(self, record: Record | None) -> None:
        self._record = record
        self._seen: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[Inputs, Callable[[], None], Any]] = {}

    def __call__(self, step: Step, inputs: Inputs, kind: Hashable) -> Any:
        """Make a step. Raises ParibusError if it cannot be recorded."""
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
    """Return a recorder of CUDA graphs that share one memory pool."""
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
                f"a training step cannot be recorded ({str(error).splitlines()[0]}); a custom "
                "module may read a tensor's value on the host: run with --eager, which is slower",
                code="own_code",
            ) from error
        return graph.replay, outputs

    return record
