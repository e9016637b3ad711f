"""A short measured warm-up in a worker: what a step, an evaluation and the memory cost."""

from __future__ import annotations

import time

import numpy as np
import torch

from paribus.engine.data import Dataset
from paribus.engine.evaluation import evaluate_on, own_measures
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.ceiling import product_speed
from paribus.engine.machine.environment import environment
from paribus.engine.machine.limits import LARGEST_STATE_BYTES, WARM_UP_STEPS
from paribus.engine.machine.measurements import ModelSize, StackTimes, StepCost
from paribus.engine.machine.memory import (
    BYTES_PER_PARAMETER,
    device_memory,
    host_memory,
)
from paribus.engine.machine.timing import PhaseClock, timed
from paribus.engine.model import (
    build_model,
    count_parameters,
    training_flops,
    training_flops_per_token,
    weight_shapes,
)
from paribus.engine.training import OTHER, PRODUCTS, Trainer
from paribus.errors import ParibusError
from paribus.study import Setting, Study

STEPS = 3
LONGEST_STEP_SECONDS = 20.0  # a model whose step takes longer is not tried out
MOST_ROWS = 256  # of the products that say whether to try


def measure(study: Study, arm: str, dataset: Dataset, device: torch.device, R: int = 1) -> StepCost:
    """What R replicas of `arm` side by side cost.

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
    """What `paribus.engine.execution.bench` adds up over workers, for a stack of R replicas.

    Raises ParibusError where they do not fit into the memory of a GPU.
    """
    setting = study.setting(arm)
    try:
        stack = build_stack(study, setting, range(R), dataset, device)
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
    """How large the model of `arm` is; allocates no weights."""
    setting = study.setting(arm)
    parameters = count_parameters(setting, dataset.vocab_size, study.folder)
    return ModelSize(
        parameters=parameters,
        state_bytes=BYTES_PER_PARAMETER * parameters,
        too_large=BYTES_PER_PARAMETER * parameters > LARGEST_STATE_BYTES,
        flops_per_token=training_flops_per_token(setting, dataset.vocab_size, study.folder),
        counted_flops_per_token=training_flops(setting, dataset.vocab_size, study.folder).per_token,
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
