"""Measurements of a machine as plain data, so that whoever asks for them loads no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelSize:
    """The size of an arm's model; nothing of it was allocated.

    Attributes:
        parameters: trainable ones.
        state_bytes: of weights, gradients and optimizer slots, in training.
        too_large: whether not even one replica is tried out.
        flops_per_token: floating-point operations of training: by the formula, or counted where
            there are own modules, whose products it does not know; by it if they cannot be.
        are_flops_known: whether they are not by a formula that does not know them.
    """

    parameters: int
    state_bytes: int
    too_large: bool
    flops_per_token: int
    are_flops_known: bool


@dataclass(frozen=True)
class Fit:
    """The replicas that fit into the memory, and why no more; `why` is empty where all do."""

    stack: int
    why: str


@dataclass(frozen=True)
class StepCost:
    """The cost of a step, an evaluation and the memory.

    Attributes:
        measured: False where the model is too large to try; the others are then lower bounds.
        step_seconds: one step of the stack, the median.
        evaluation_seconds: held-out evaluation of one trial.
        memory_bytes: the most that the process, or its GPU, had in use.
    """

    measured: bool
    step_seconds: float
    evaluation_seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class StackTimes:
    """The times of one process that trains a stack.

    Attributes:
        parameters: trainable parameters of one replica.
        precision: of the matrix products.
        phase_seconds: of a step whose kernels are launched one by one, by phase
            (`paribus.engine.training.PHASES`).
        step_seconds: one step of the stack, as it trains.
        processor_share: of that time, how much the process had a processor.
        flops_per_step: of the matrix products of all replicas.
        ceiling_flops_per_second: of these products alone.
        evaluation_seconds: held-out evaluation of one trial.
        memory_bytes: the largest resident memory of the process.
        device_memory_bytes: the most that its tensors took on a CUDA device; None elsewhere.
        machine: as in the record of a trial.
    """

    parameters: int
    precision: str
    phase_seconds: dict[str, float]
    step_seconds: float
    processor_share: float
    flops_per_step: int
    ceiling_flops_per_second: float
    evaluation_seconds: float
    memory_bytes: int
    device_memory_bytes: int | None
    machine: dict[str, Any]


WARM_UP_STEPS = 3  # before steps are timed
LARGEST_STATE_BYTES = 4 * 2**30  # of training states that are held only to be timed
