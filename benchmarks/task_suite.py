"""Whether the task suite measures: accuracy by task as the baseline of `quickstart` is trained.

    python benchmarks/task_suite.py [--keep FOLDER]

Trains one seed for 1,500 iterations (some 15 minutes on one core) and runs every item of every task
after 0, 150, 300 and 1,500 of them. The control compares the last model's choices with the answers
of other items. With --keep, weights stay in FOLDER, and a second call trains nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # one core; read when torch is imported

import numpy as np
import safetensors.numpy
import torch

import paribus
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.evaluation.harness import TaskResults, evaluate_tasks
from paribus.engine.model import build_model, load_parameters
from paribus.engine.tasks import build_suite, write_suite
from paribus.engine.training import Trainer
from paribus.rng import stream
from paribus.study import Setting

SEED = 1
SHOTS = (0, 3)


def train(setting: Setting, dataset: Dataset, milestones: list[int], folder: Path) -> None:
    """The weights after each of `milestones` iterations, as `<iterations>.safetensors`."""
    if all((folder / f"{t}.safetensors").exists() for t in milestones):
        return
    folder.mkdir(parents=True, exist_ok=True)
    stack = Trainer(setting, [SEED], dataset)
    for milestone in milestones:
        while stack.t < milestone:
            stack.step()
        safetensors.numpy.save_file(stack.parameters(0), folder / f"{milestone}.safetensors")


def control(results: TaskResults) -> dict[tuple[str, int], float]:
    """{(task, shots): accuracy of the model's choices against the answers of other items}."""
    columns = {name: results.items[name].to_pylist() for name in ("task", "shots")}
    answers, predicted = (results.items[name].to_numpy() for name in ("answer", "predicted"))
    accuracies = {}
    for cell in results.cells:
        key = cell["task"], cell["shots"]
        at = np.array([key == other for other in zip(*columns.values(), strict=True)])
        shuffled = stream(SEED, "control", *key).permutation(answers[at])
        accuracies[key] = float((predicted[at] == shuffled).mean())
    return accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, nargs="+", default=[0, 150, 300, 1500])
    parser.add_argument("--study", default="quickstart")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    milestones = sorted(options.iterations)
    fixed = {"training.iterations": max(*milestones, 1), "training.precision": "float32"}
    study = paribus.load_study(options.study, fixed)
    setting = study.setting("baseline")
    dataset = load_dataset(setting.data, study.folder)
    window = setting.data.seq_len
    with tempfile.TemporaryDirectory() as temporary:
        weights = options.keep or Path(temporary) / "weights"
        train(setting, dataset, milestones, weights)
        suite = write_suite(Path(temporary) / "suite", build_suite(dataset, 0, window))
        model = build_model(setting, dataset.vocab_size, study.folder)
        runs: list[TaskResults] = []
        for milestone in milestones:
            load_parameters(
                model, safetensors.numpy.load_file(weights / f"{milestone}.safetensors")
            )
            results = evaluate_tasks(
                model, dataset.tokenizer, window, suite.folder, shots=SHOTS, n_items=None
            )
            runs.append(results)
    for task, why in suite.left_out.items():
        print(f"left out: {task}: {why}")
    report(milestones, runs)


def report(milestones: list[int], runs: list[TaskResults]) -> None:
    """A Markdown table: accuracy (standard error) in per cent."""
    shuffled = control(runs[-1])
    print("| task | shots | chance |", " | ".join(f"{t:,} it." for t in milestones), "| control |")
    print("| --- " * (4 + len(milestones)) + "|")
    for cells in zip(*(run.cells for run in runs), strict=True):
        chance, n = cells[0]["chance"], cells[0]["items"]
        texts = [
            f"{100 * a:.1f} ({100 * math.sqrt(a * (1 - a) / n):.1f})"
            for a in (cell["accuracy"] for cell in cells)
        ]
        key = cells[0]["task"], cells[0]["shots"]
        texts += [f"{100 * shuffled[key]:.1f}"]
        print(f"| {key[0]} | {key[1]} | {100 * chance:.0f} |", " | ".join(texts), "|")
    for name in ("accuracy", "normalised_accuracy"):
        macro = [f"{100 * run.scores['overall'][name]:.1f}" for run in runs]
        print(f"| **macro {name.replace('_', ' ')}** | | |", " | ".join(macro), "| |")


if __name__ == "__main__":
    main()
