"""Benchmark of the probes' overhead: training with all default probes, and without probes.

    python benchmarks/probe_cost.py [--rounds N] [--steps N]

Two trainers with the model of `quickstart` alternate every N steps, on one thread and the same
batches. CPU time is measured, because other programs affect it less than wall time. Each probe is
also timed alone; its cost is reported as a share of a training step without probes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from paribus.engine.data import load_dataset
from paribus.engine.observation import Probe, StepView
from paribus.engine.probes import shipped_probes
from paribus.engine.training import Trainer
from paribus.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    study = load_study(
        "quickstart", {"training.iterations": 100_000, "training.precision": "float32"}
    )
    dataset = load_dataset(study.data, study.folder)
    probes = list(shipped_probes().values())

    def stack(probes: Sequence[Probe]) -> Trainer:
        made = Trainer(study.setting("layernorm"), [1], dataset, probes=probes)
        made.step()  # every probe is due at step 0: not part of what is timed
        return made

    bare, probed = stack([]), stack(probes)
    ratios = []
    for _ in range(arguments.rounds):
        without, with_ = (seconds(one, arguments.steps) for one in (bare, probed))
        ratios.append(with_ / without)
        print(f"without {without:.3f} s/step, with {with_:.3f} s/step, ratio {ratios[-1]:.3f}")
    print(f"all probes: ratio {np.median(ratios):.3f} (median of {arguments.rounds} rounds)")

    step_seconds = np.median([seconds(bare, 3) for _ in range(3)])
    print(f"\n{'probe':24} {'ms':>7} {'every':>6} {'share of a step':>16}")
    for probe in probes:
        ms = measured_alone(stack, probe) * 1e3
        share = ms / probe.every / step_seconds / 1e3
        print(f"{probe.name:24} {ms:7.1f} {probe.every:6} {share:16.2%}")


def seconds(stack: Trainer, steps: int) -> float:
    began = time.process_time()
    for _ in range(steps):
        stack.step()
    return (time.process_time() - began) / steps


def measured_alone(stack_with: Callable[[Sequence[Probe]], Trainer], probe: Probe) -> float:
    """Return the median CPU time of one measurement, in seconds."""
    taken: list[float] = []

    def timed(view: StepView) -> torch.Tensor:
        began = time.process_time()
        values = probe.measure(view)
        taken.append(time.process_time() - began)
        return values

    stack = stack_with([replace(probe, measure=timed, every=1)])
    for _ in range(4):
        stack.step()
    return float(np.median(taken))


if __name__ == "__main__":
    main()
