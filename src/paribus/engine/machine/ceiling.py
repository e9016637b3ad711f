"""How fast this machine multiplies matrices of the model's shapes, and nothing else.

No training step can do its products faster, so this is what a step's speed is measured against.
Operands lie ready and results have their place: what is left out is all that a model does besides.

Axes: R replicas, M tokens of a step, N outputs and K inputs of a weight [N, K].
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from paribus.engine.machine.timing import timed

SHAPE_SECONDS = 0.05  # a product is repeated for so long, and its fastest time counts:
LEAST_TURNS = 3  # what else the machine does only ever slows it down
GPU_PRODUCTS = 20  # in a turn: one alone would be the time of a launch

Action = Callable[[], object]


def product_speed(
    shapes: Iterable[tuple[int, int]],
    M: int,
    *,
    R: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
) -> float:
    """Floating-point operations per second over all three products of every weight [N, K].

    They are y = x W^T of the forward pass, and dx = dy W and dW = dy^T x of the backward pass;
    with R > 1 each is R products at once.
    """
    seconds = flops = 0.0
    for (N, K), times in Counter(shapes).items():
        for product in _products(R, M, N, K, dtype, device):
            seconds += times * _fastest(product, device)
            flops += times * 2 * R * M * N * K
    return flops / seconds


def _products(
    R: int, M: int, N: int, K: int, dtype: torch.dtype, device: torch.device
) -> Iterator[Action]:
    generator = torch.Generator(device).manual_seed(0)

    def operand(*shape: int) -> Tensor:
        stacked = shape if R == 1 else (R, *shape)
        return torch.randn(stacked, generator=generator, dtype=dtype, device=device)

    x_MK, w_NK, y_MN = operand(M, K), operand(N, K), operand(M, N)
    for left, right in ((x_MK, w_NK.mT), (y_MN, w_NK), (y_MN.mT, x_MK)):
        result = left @ right
        yield lambda left=left, right=right, result=result: torch.matmul(left, right, out=result)


def _fastest(product: Action, device: torch.device) -> float:
    """Seconds of one product, of its fastest turn."""
    turn, n = (_graph(product), GPU_PRODUCTS) if device.type == "cuda" else (product, 1)
    turn()
    fastest, n_turns, ends = math.inf, 0, time.perf_counter() + SHAPE_SECONDS
    while n_turns < LEAST_TURNS or time.perf_counter() < ends:
        fastest, n_turns = min(fastest, timed(turn, device)[1]), n_turns + 1
    return fastest / n


def _graph(product: Action) -> Action:
    """GPU_PRODUCTS of them as one CUDA graph, which no launch from Python holds up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries set themselves up outside the capture
        product()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GPU_PRODUCTS):
            product()
    return graph.replay
