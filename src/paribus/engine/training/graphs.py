"""A step as one launch: on a GPU its kernels are recorded once, as a CUDA graph, and replayed.

A step of a small model is some thousand kernels of a few microseconds; launched one by one from
Python they take longer than they run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from paribus.engine.training.prefetch import Inputs
from paribus.errors import ParibusError

GRAPHED_STEPS = 3  # the first of a kind of steps runs as it is written, the second is recorded
# What is recorded: it reads its inputs, writes to tensors of its own in place and returns others,
# and asks nothing of the host that depends on a tensor's values.
Step = Callable[[Inputs, Any], Any]
# (function, inputs) -> (what repeats the recorded kernels, what the function returned)
Record = Callable[[Callable[[Inputs], Any], Inputs], tuple[Callable[[], None], Any]]


class Graphs:
    """Calls `step(inputs, kind)`; with `record`, its later calls of each kind are replays.

    The first call of a kind runs as it is written, which also gives libraries the chance to set
    themselves up. What a replay returns is overwritten by the next replay.
    """

    def __init__(self, record: Record | None) -> None:
        self._record = record
        self._met: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[Inputs, Callable[[], None], Any]] = {}

    def __call__(self, step: Step, inputs: Inputs, kind: Hashable) -> Any:
        """Make a step. Raises ParibusError where it cannot be recorded."""
        shaped = kind, inputs.windows.shape  # batches may grow
        if self._record is None or shaped not in self._met:
            self._met.add(shaped)
            return step(inputs, kind)
        if shaped not in self._recorded:
            static = Inputs(*(part.clone() for part in inputs))
            self._recorded[shaped] = (
                static,
                *self._record(lambda given: step(given, kind), static),
            )
        static, replay, outputs = self._recorded[shaped]
        for place, value in zip(static, inputs, strict=True):
            place.copy_(value)
        replay()
        return outputs


def cuda_recorder() -> Record:
    """Return a recorder of CUDA graphs that share one pool of memory, as they replay in turn."""
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[Inputs], Any], inputs: Inputs) -> tuple[Callable[[], None], Any]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool):
                outputs = function(inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # What went wrong comes first; that the recording broke off, after it.
            while isinstance(error.__context__, RuntimeError):
                error = error.__context__
            raise ParibusError(
                f"a training step cannot be recorded as one launch ({str(error).splitlines()[0]}); "
                "an own module may ask the host for a tensor's value: run with --eager, which is "
                "slower"
            ) from error
        return graph.replay, outputs

    return record
