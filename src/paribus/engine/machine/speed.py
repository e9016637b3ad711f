"""The speed of a machine: what a step, an evaluation and the memory cost, against its ceiling.

No training step can do its matrix products faster than they are done alone, at the same shapes;
that is the ceiling. A GPU works on while Python goes ahead; whatever is timed here is waited for,
or marked by events that the device itself passes.

Axes: R replicas, M tokens of a step, N outputs and K inputs of a weight [N, K].
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import Dataset
from paribus.engine.evaluation import evaluate_on, own_measures
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.environment import environment
from paribus.engine.machine.measurements import (
    LARGEST_STATE_BYTES,
    WARM_UP_STEPS,
    ModelSize,
    StackTimes,
    StepCost,
)
from paribus.engine.machine.memory import (
    BYTES_PER_PARAMETER,
    device_memory,
    host_memory,
)
from paribus.engine.model import (
    build_model,
    count_parameters,
    training_flops,
    training_flops_per_token,
    weight_shapes,
)
from paribus.engine.setting import Setting
from paribus.engine.training import OTHER, PHASES, PRODUCTS, Trainer
from paribus.errors import ParibusError
from paribus.study import Study

Result = TypeVar("Result")


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def timed(action: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """Return what `action` gives, and the seconds that it took."""
    wait(device)
    began = time.perf_counter()
    result = action()
    wait(device)
    return result, time.perf_counter() - began


class PhaseClock:
    """Adds up the seconds of a stack's phases: its `begin` is what `Trainer.on_phase` is set to.

    From one call to the next all time belongs to the phase begun, so that phases sum to the whole.
    On CUDA that is the device's time: what the host does meanwhile is charged to a phase only
    where the device waits for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str, Any]] = []

    def begin(self, phase: str) -> None:
        """End the phase before, and begin this one."""
        self._marks.append((phase, self._now()))

    def seconds(self) -> dict[str, float]:
        """{phase: seconds} up to the last call of `begin`."""
        wait(self._device)
        totals: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        for (phase, since), (_, until) in pairwise(self._marks):
            totals[phase] += self._between(since, until)
        return totals

    def _now(self) -> Any:
        if self._device.type != "cuda":
            wait(self._device)
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _between(self, since: Any, until: Any) -> float:
        if self._device.type != "cuda":
            return until - since
        return since.elapsed_time(until) / 1e3  # it gives milliseconds


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


STEPS = 3
LONGEST_STEP_SECONDS = 20.0  # a model whose step takes longer is not tried out
MOST_ROWS = 256  # of the products that say whether to try


def measure(study: Study, arm: str, dataset: Dataset, device: torch.device, R: int = 1) -> StepCost:
    """Return what R replicas of `arm` side by side cost.

    A model that is too large to try gets `measured` = False and lower bounds.
    """
    setting = study.setting(arm)
    size = model_size(study, arm, dataset)
    flops_per_second = ceiling(study, setting, dataset, device, most_rows=MOST_ROWS)
    least_seconds = R * size.flops_per_token * setting.tokens_per_step / flops_per_second
    state_bytes = R * size.state_bytes
    if least_seconds > LONGEST_STEP_SECONDS or state_bytes > LARGEST_STATE_BYTES:
        # Evaluation is a forward pass: a third of the operations of training.
        forward = size.flops_per_token / 3
        return StepCost(
            measured=False,
            step_seconds=least_seconds,
            evaluation_seconds=forward * len(dataset.validation) / flops_per_second,
            memory_bytes=state_bytes,
        )
    stack = build_stack(study, setting, range(R), dataset, device)
    stack.go_to_largest_batch()
    for _ in range(WARM_UP_STEPS if device.type == "cuda" else 1):
        stack.step()
    steps = [timed(stack.step, device)[1] for _ in range(STEPS)]
    evaluation_seconds = _evaluation(study, setting, dataset, device)
    in_use = device_memory(device)
    return StepCost(
        measured=True,
        step_seconds=float(np.median(steps)),
        evaluation_seconds=evaluation_seconds,
        memory_bytes=host_memory() if in_use is None else in_use,
    )


def bench_stack(
    study: Study, arm: str, dataset: Dataset, device: torch.device, R: int, steps: int
) -> StackTimes:
    """Return what `paribus.engine.execution.timing.bench` adds up over workers, for a stack of R
    replicas.

    Raises ParibusError where they do not fit into the memory of a GPU.
    """
    setting = study.setting(arm)
    try:
        stack = build_stack(study, setting, range(R), dataset, device)
        stack.go_to_largest_batch()
        for _ in range(WARM_UP_STEPS):
            stack.step()
        # Before and after, for machines change their speed; the faster one is the ceiling.
        before = ceiling(study, setting, dataset, device, R=R)
        phases, processor_share = _phases(stack, steps, device)
        step_seconds = sum(phases.values())
        if device.type == "cuda":
            step_seconds = _replayed(stack, steps, device)
        after = ceiling(study, setting, dataset, device, R=R)
        evaluation_seconds = _evaluation(study, setting, dataset, device)
    except torch.OutOfMemoryError:
        raise ParibusError(
            f"a stack of {R} does not fit into the memory of {torch.cuda.get_device_name(device)}; "
            "state a smaller --stack"
        ) from None
    size = model_size(study, arm, dataset)
    return StackTimes(
        parameters=size.parameters,
        precision=setting.training.precision,
        phase_seconds=phases,
        step_seconds=step_seconds,
        processor_share=processor_share,
        flops_per_step=R * setting.tokens_per_step * size.flops_per_token,
        ceiling_flops_per_second=max(before, after),
        evaluation_seconds=evaluation_seconds,
        memory_bytes=host_memory(),
        device_memory_bytes=device_memory(device),
        machine=environment(device, R),
    )


def model_size(study: Study, arm: str, dataset: Dataset) -> ModelSize:
    """Return how large the model of `arm` is; allocates no weights."""
    setting = study.setting(arm)
    about = (setting, dataset.vocab_size, study.folder)
    parameters, known = count_parameters(*about), training_flops(*about).per_token
    return ModelSize(
        parameters=parameters,
        state_bytes=BYTES_PER_PARAMETER * parameters,
        too_large=BYTES_PER_PARAMETER * parameters > LARGEST_STATE_BYTES,
        flops_per_token=training_flops_per_token(*about) if known is None else known,
        are_flops_known=known is not None,
    )


def ceiling(
    study: Study,
    setting: Setting,
    dataset: Dataset,
    device: torch.device,
    *,
    R: int = 1,
    most_rows: int | None = None,
) -> float:
    """`product_speed` at the shapes and in the precision of `setting`, FLOPs per second."""
    shapes = weight_shapes(setting, dataset.vocab_size, study.folder)
    return product_speed(
        shapes.values(),
        min(setting.tokens_per_step, most_rows or setting.tokens_per_step),
        R=R,
        dtype=PRODUCTS[setting.training.precision],
        device=device,
    )


def _replayed(stack: Trainer, steps: int, device: torch.device) -> float:
    """Mean seconds of a step as a GPU trains: as one launch, with nobody listening."""
    for _ in range(WARM_UP_STEPS):
        stack.step()

    def train() -> None:
        for _ in range(steps):
            stack.step()

    return timed(train, device)[1] / steps


def _phases(stack: Trainer, steps: int, device: torch.device) -> tuple[dict[str, float], float]:
    """({phase: mean seconds of a step}, the share of them that a processor was at work for us)."""
    clock = PhaseClock(device)
    stack.on_phase = clock.begin
    began = time.process_time()
    clock.begin(OTHER)
    for _ in range(steps):
        stack.step()
    clock.begin(OTHER)
    totals = clock.seconds()
    stack.on_phase = None
    processor_share = (time.process_time() - began) / sum(totals.values())
    return {phase: seconds / steps for phase, seconds in totals.items()}, processor_share


def _evaluation(study: Study, setting: Setting, dataset: Dataset, device: torch.device) -> float:
    """Seconds of a trial's held-out evaluation, from as many tokens as a step has."""
    model = build_model(setting, dataset.vocab_size, study.folder).to(device)
    some = dataset.validation[: setting.tokens_per_step + 1]
    # The first time imports what measures need, which is not the text's length times as much.
    own, seq_len = own_measures(study.evaluation.own, study.folder), setting.data.seq_len
    precision = study.evaluation.precision
    evaluate_on(model, dataset, some[: seq_len + 1], seq_len, own, precision)
    _, seconds = timed(lambda: evaluate_on(model, dataset, some, seq_len, own, precision), device)
    return seconds * len(dataset.validation) / len(some)
