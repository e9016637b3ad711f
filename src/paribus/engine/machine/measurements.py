"""Measurements of a machine as plain data, which import no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """The number of replicas that fit into memory; `why` not more, empty if all do."""

    stack: int
    why: str


@dataclass(frozen=True)
class StepTime:
    """A measured training step of the baseline.

    Attributes:
        seconds: the median of a few steps of a stack.
        stack: trials side by side in the stack.
        memory_bytes: the largest memory of the process, or of its GPU.
    """

    seconds: float
    stack: int
    memory_bytes: int
