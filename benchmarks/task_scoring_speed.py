"""What the default share of the task suite costs, against a bare forward pass and against training.

    python benchmarks/task_scoring_speed.py [--rounds 5]

One core, the model and text of `quickstart`, in turn. Tokens of a request are those of its context
and its choice; `distinct` counts a context once for all the choices of its item.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # one core; read when torch is imported

import numpy as np
import torch

import paribus
from paribus.engine.data import batch, load_dataset
from paribus.engine.evaluation.harness import evaluate_tasks
from paribus.engine.evaluation.harness import scoring as harness_scoring
from paribus.engine.evaluation.harness.adapter import ParibusLM
from paribus.engine.model import build_model, initial_parameters, load_parameters
from paribus.engine.tasks import build_suite, write_suite
from paribus.engine.training import Trainer

BARE_PASSES = 10
TRAINING_STEPS = 6


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = paribus.load_study("quickstart", {"training.precision": "float32"})
    setting = study.setting("baseline")
    dataset = load_dataset(setting.data, study.folder)
    window = setting.data.seq_len
    model = build_model(setting, dataset.vocab_size, study.folder)
    drawn = initial_parameters(model, setting, 1)
    load_parameters(model, {name: parameter.value for name, parameter in drawn.items()})
    model.eval()
    stack = Trainer(setting, [1], dataset)
    tokens = torch.from_numpy(batch(dataset.train, 1, 0, 16, window)[:, :-1])

    def bare() -> None:
        with torch.no_grad():
            for _ in range(BARE_PASSES):
                model(tokens)

    def train() -> None:
        for _ in range(TRAINING_STEPS):
            stack.step()

    with tempfile.TemporaryDirectory() as temporary:
        began = time.perf_counter()
        suite = write_suite(Path(temporary), build_suite(dataset, 0, window))
        print(f"making and writing the suite, once a study: {time.perf_counter() - began:.1f} s")
        pairs: list[harness_scoring.Pair] = []
        keep = ParibusLM._pair
        ParibusLM._pair = lambda *args: pairs.append(keep(*args)) or pairs[-1]  # type: ignore[method-assign]
        evaluate = lambda: evaluate_tasks(model, dataset.tokenizer, window, suite.folder)  # noqa: E731
        first = seconds(evaluate)
        ParibusLM._pair = keep
        requested = sum(len(pair.context) + len(pair.continuation) for pair in pairs)
        contexts = {pair.context.tobytes(): len(pair.context) for pair in pairs}
        distinct = sum(contexts.values()) + sum(len(pair.continuation) for pair in pairs)
        works = {
            "bare": bare,
            "scoring": lambda: harness_scoring.score(model, pairs),
            "evaluate": evaluate,
            "train": train,
        }
        spent: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(options.rounds):
            for name, work in works.items():
                spent[name].append(seconds(work))
    report(first, requested, distinct, tokens.numel(), spent, setting.iterations)


def report(
    first: float,
    requested: int,
    distinct: int,
    bare_tokens: int,
    spent: dict[str, list[float]],
    iterations: int,
) -> None:
    bare = np.array([BARE_PASSES * bare_tokens / s for s in spent["bare"]])
    print(f"{'bare forward pass':<44} {statistics.median(bare):>8,.0f} tokens/s")
    for name, count in (("requests'", requested), ("distinct", distinct)):
        rate = np.array([count / s for s in spent["scoring"]])
        print(
            f"{f'scoring, {name} {count:,} tokens':<44} {statistics.median(rate):>8,.0f} tokens/s, "
            f"{statistics.median(rate / bare):.2f} of bare ({min(rate / bare):.2f} to "
            f"{max(rate / bare):.2f})"
        )
    training = np.array(spent["train"]) / TRAINING_STEPS * iterations
    evaluating = np.array(spent["evaluate"])
    print(f"{'the default share, first in a process':<44} {first:8.1f} s")
    print(
        f"{'the default share, later':<44} {statistics.median(evaluating):8.1f} s "
        f"({min(evaluating):.1f} to {max(evaluating):.1f}), of which scoring "
        f"{statistics.median(spent['scoring']):.1f} s"
    )
    print(
        f"{f'training, {iterations} iterations':<44} {statistics.median(training):8.1f} s; "
        f"the share costs {100 * statistics.median(evaluating / training):.1f}% of it"
    )


if __name__ == "__main__":
    main()
