"""The speed at which this machine trains a study's model, against its ceiling and by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paribus.engine.data import load_dataset
from paribus.engine.execution.backends import Backend, find_backend
from paribus.engine.execution.backends.local import count_cores
from paribus.engine.execution.start import settle_precision
from paribus.engine.execution.trial.stacks import default_size
from paribus.engine.execution.workers.messages import Check, MeasureStack
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Device
from paribus.engine.machine.measurements import WARM_UP_STEPS, StackTimes
from paribus.errors import ParibusError, require_positive
from paribus.study import Study, require_trust

STEPS = 25  # every probe is due as often in them as in a long run, or nearly


@dataclass(frozen=True)
class StackSpeed:
    """The speed of stacks of one size, with all workers at work.

    Attributes:
        stack: replicas side by side in a worker.
        tokens_per_second: training tokens, of all workers.
        step_seconds: one step of a stack, probes as often as they are due; the mean over steps
            and workers.
        phase_seconds: of a step, by phase (`paribus.engine.training.PHASES`). They sum to
            `phased_seconds`.
        processor_share: of that time, how much the workers had a processor; on a CPU, less than
            all means that other programs ran beside them. None on a GPU, where they may wait.
        flops_per_second: operations of a step's matrix products, forward and backward, by
            `step_seconds`; of all workers.
        ceiling_flops_per_second: the same of products alone, at the shapes of the model's weights
            and in its precision; of all workers.
        memory_bytes: the largest resident memory of one worker.
        device_memory_bytes: the most that its tensors took on a CUDA device; None elsewhere.
    """

    stack: int
    tokens_per_second: float
    step_seconds: float
    phase_seconds: dict[str, float]
    processor_share: float | None
    flops_per_second: float
    ceiling_flops_per_second: float
    memory_bytes: int
    device_memory_bytes: int | None

    @property
    def share(self) -> float:
        """Of the ceiling that training achieves."""
        return self.flops_per_second / self.ceiling_flops_per_second

    @property
    def phased_seconds(self) -> float:
        """The step whose phases were timed: on a CPU `step_seconds`; on a GPU more, for phases are
        told apart where kernels are launched one by one, and training launches a step as one."""
        return sum(self.phase_seconds.values())


@dataclass(frozen=True)
class Bench:
    """A result of `bench`.

    Attributes:
        study, arm: what was trained.
        precision: of the matrix products.
        parameters: trainable parameters of the arm.
        tokens_per_step: of one replica.
        steps: timed steps of every worker.
        workers: worker processes, all at work at once.
        evaluation_seconds: held-out evaluation of one trial, without tasks.
        machine: processor, cores, device, system and versions.
        date: of the measurement, UTC, ISO 8601.
        speeds: a row per size of a stack.
    """

    study: str
    arm: str
    precision: str
    parameters: int
    tokens_per_step: int
    steps: int
    workers: int
    evaluation_seconds: float
    machine: dict[str, Any]
    date: str
    speeds: tuple[StackSpeed, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        speeds = [
            asdict(speed) | {"share": speed.share, "phased_seconds": speed.phased_seconds}
            for speed in self.speeds
        ]
        return asdict(self) | {"speeds": speeds}


def bench(
    study: Study,
    arm: str | None = None,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stacks: Sequence[int] | None = None,
    steps: int | None = None,
    backend: str | Backend = "local",
) -> Bench:
    """Time training steps of `arm` on all workers at once, every probe on. Nothing is written.

    Args:
        study: what `load_study` gives.
        arm: by default the study's baseline.
        workers: worker processes; by default one per core on a CPU, one on a GPU.
        device: where to train.
        stacks: replicas trained side by side in a worker, one row each; by default 1 on a CPU and
            all seeds of an arm on a GPU, as `run` has it.
        steps: how many to time after a few to warm up; by default 25, or what the study has.
        backend: as for `run`.

    Raises ParibusError on bad input, and where a stack does not fit into memory.
    """
    arm, at = study.baseline if arm is None else arm, find_backend(backend)
    setting = study.setting(arm)
    for size in stacks or (None,):
        require_positive(workers=workers, stack=size)
    steps = _steps(setting.iterations, steps)
    require_trust(study)  # a corpus may be custom code
    load_dataset(setting.data, study.folder)
    measured, speeds = list[StackTimes](), list[StackSpeed]()
    # Every size has workers of its own: the most memory that a process ever took is its alone.
    for size in dict.fromkeys(stacks or (None,)):
        measured = _measure(study, arm, size, steps, workers, device, at)
        speeds.append(_speed(measured, setting.tokens_per_step))
    machine = measured[0].machine
    return Bench(
        study=study.name,
        arm=arm,
        precision=measured[0].precision,
        parameters=measured[0].parameters,
        tokens_per_step=setting.tokens_per_step,
        steps=steps,
        workers=len(measured),
        evaluation_seconds=_mean([times.evaluation_seconds for times in measured]),
        machine={key: value for key, value in machine.items() if key != "stack"}
        | {"cores": count_cores()},
        date=datetime.now(UTC).date().isoformat(),
        speeds=tuple(speeds),
    )


def _steps(iterations: int, wished: int | None) -> int:
    """Return how many steps to time, within those that the study has."""
    room = iterations - WARM_UP_STEPS
    if room < 1:
        raise ParibusError(
            f"{iterations} iterations are too few to time, which takes more than {WARM_UP_STEPS} "
            "to warm up; raise them with --set training.iterations"
        )
    if wished is None:
        return min(STEPS, room)
    if not 1 <= wished <= room:
        raise ParibusError(
            f"steps = {wished} must be from 1 to {room}: the study has {iterations} iterations, "
            f"and {WARM_UP_STEPS} are to warm up"
        )
    return wished


def _measure(
    study: Study,
    arm: str,
    size: int | None,
    steps: int,
    workers: int | None,
    device: Device,
    backend: Backend,
) -> list[StackTimes]:
    """Return what every worker measured with stacks of `size`, all at once."""
    with Pool(study, Path(), device=device, backend=backend) as pool:
        ready = pool.ready(pool.start())
        study = settle_precision(study, ready, pool)
        size = size or min(default_size(study, ready.device), len(study.seeds))
        pool.start_more(pool.n_workers(workers, replace(ready, devices=1)))
        pool.work([Check(arm, size)])
        # All at once: cores share caches and memory, and a study will use them all.
        doing = f"while stacks of {size} were timed; state fewer --workers or a smaller --stack"
        return pool.ask_at_once(MeasureStack(arm, size, steps), pool.at_once, doing)


def _speed(measured: list[StackTimes], tokens_per_step: int) -> StackSpeed:
    """Of all workers together."""
    n, stack = len(measured), measured[0].machine["stack"]
    phases = {
        phase: _mean([times.phase_seconds[phase] for times in measured])
        for phase in measured[0].phase_seconds
    }
    step_seconds = _mean([times.step_seconds for times in measured])
    in_use = measured[0].device_memory_bytes
    at_work = _mean([times.processor_share for times in measured])
    return StackSpeed(
        stack=stack,
        tokens_per_second=n * stack * tokens_per_step / step_seconds,
        step_seconds=step_seconds,
        phase_seconds=phases,
        processor_share=at_work if measured[0].machine["device"] == "cpu" else None,
        flops_per_second=n * measured[0].flops_per_step / step_seconds,
        ceiling_flops_per_second=sum(times.ceiling_flops_per_second for times in measured),
        memory_bytes=max(times.memory_bytes for times in measured),
        device_memory_bytes=in_use and max(times.device_memory_bytes or 0 for times in measured),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
