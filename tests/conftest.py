"""Fixtures that many tests share: a small study on a small text, in a folder of its own."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.data import Dataset, load_dataset
from paribus.evaluation.harness import CELLS, ITEMS
from paribus.results import Results, ResultsFolder, load_results, registration, settle
from paribus.results.files import write_table
from paribus.streams import stream
from paribus.study import Study, parse_study
from paribus.study.study import override

# As workers have it: small products are slower on several threads. Read when torch is imported,
# which nothing above does.
os.environ.setdefault("OMP_NUM_THREADS", "1")

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "mixing",
    "bold",
    "ink",
]


def small_text(n_words: int = 2000) -> str:
    """Text with some structure: words in an order that a linear congruence decides."""
    state, words = 1, []
    for i in range(n_words):
        state = (1103515245 * state + 12345) % 2**31
        words.append(WORDS[state // 65536 % len(WORDS)] + (".\n" if i % 11 == 10 else " "))
    return "".join(words)


SMALL: dict[str, Any] = {
    "name": "small",
    "seeds": [1, 2],
    "data": {"corpus": "text", "path": "text.txt", "seq_len": 16},
    "model": {"n_layer": 2, "n_head": 2, "d_model": 16},
    "training": {"iterations": 8, "batch_size": 4},
    "stability": {"smoothing_steps": 2, "median_steps": 3, "spike_steps": 2},
    "arms": {
        "baseline": {},
        "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
        "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}},
    },
}


@pytest.fixture
def small_study(tmp_path: Path) -> Callable[..., Study]:
    """`small_study({"training.iterations": 3}, arms=...)`: SMALL with overrides, in `tmp_path`."""
    (tmp_path / "text.txt").write_text(small_text(), encoding="utf-8")

    def make(overrides: dict[str, Any] | None = None, **tables: Any) -> Study:
        table = parse_study(SMALL | tables, folder=tmp_path).model_dump()
        for key, value in (overrides or {}).items():
            override(table, key, value)
        return parse_study(table, folder=tmp_path)

    return make


@pytest.fixture
def small_dataset(small_study: Callable[..., Study]) -> Dataset:
    study = small_study()
    return load_dataset(study.data, study.folder)


@pytest.fixture
def fabricate(tmp_path: Path) -> Callable[..., Results]:
    """`fabricate(study, loss, ...)` writes a results folder as `run` does, without training."""
    return lambda study, loss, **options: write_results(tmp_path / "made", study, loss, **options)


def write_results(
    path: Path,
    study: Study,
    loss: Callable[[str, int], float],
    *,
    skip: Collection[tuple[str, int]] = (),
    curve: Callable[[str, int], np.ndarray] | None = None,
    diverged: Collection[tuple[str, int]] = (),
    calibration: Callable[[str], float] = lambda arm: 0.01,
) -> Results:
    """Records of every trial with the scores that a test wants: `loss(arm, seed)`, or none."""
    folder = ResultsFolder(path)
    dataset = load_dataset(study.data, study.folder)
    settle(folder, study, registration(study, dict.fromkeys(study.arms, dataset.record), "cpu"))
    for arm, seed in study.trials:
        if (arm, seed) in skip:
            continue
        trial, setting, value = folder.trial(arm, seed), study.setting(arm), loss(arm, seed)
        steps = setting.iterations
        losses = curve(arm, seed) if curve else np.linspace(3, 2, steps)
        trial.write_columns(
            "steps.parquet",
            {
                "step": np.arange(1, steps + 1),
                "train_loss": losses,
                "grad_norm": np.full(steps, 1.0),
            },
            {"step": "1", "train_loss": "nats/token", "grad_norm": "L2"},
        )
        column = "embedding_norm/all/mean"
        trial.write_columns(
            "probes.parquet",
            {"step": np.arange(1, steps + 1, dtype=np.int32), column: np.full(steps, 11.3, "f4")},
            {"step": "1", column: "L2"},
            {column: {"probe": "embedding_norm", "part": "all", "statistic": "mean"}},
        )
        predicted = np.full(20, 16)
        correct = stream(seed, arm, "hits").integers(2, 9, size=20)
        trial.write_columns(
            "windows.parquet",
            {"loss_sum_nats": value * predicted, "correct": correct, "predicted": predicted},
            {"loss_sum_nats": "nats", "correct": "tokens", "predicted": "tokens"},
        )
        trial.write_columns(
            "evaluation.parquet",
            {"measure": np.array(["validation_loss"]), "part": np.array(["all"])},
            {"measure": "1", "part": "1"},
        )
        write_table(trial.path / "tasks.parquet", CELLS.empty_table())
        write_table(trial.path / "items.parquet", ITEMS.empty_table())
        trial.write_weights({"w": np.ones(1, np.float32)})
        finite = math.isfinite(value)
        trial.write_json(
            "evaluation.json",
            {
                "validation_loss": value if finite else None,
                "validation_perplexity": math.exp(value) if finite else None,
                "validation_accuracy": float(correct.sum() / predicted.sum()),
                "calibration_error": calibration(arm),
                "brier_score": 0.6,
            },
        )
        shared = {"shape": [2], "rule": "normal(std=0.02)", "sha256": f"values of {seed}"}
        trial.write_json("initial.json", {"embedding.tokens.weight": shared})
        trial.write_json(
            "trial.json",
            {
                "arm": arm,
                "seed": seed,
                "setting": setting.model_dump(mode="json"),
                "data": dataset.record,
                "tasks": {},
                "consumed": {"token_classes": {"alphabetic": 10}, "times_seen": [1, 2]},
                "batch_digest": f"batches of {seed}",
                "tokens": setting.tokens,
                "iterations": steps,
                "own_modules": {},
                "diverged_at": steps // 2 if (arm, seed) in diverged else None,
            },
        )
        environment = {"packages": {"torch": "2"}, "device": "cpu", "threads": 1, "stack": 1}
        trial.write_json("environment.json", environment)
        trial.write_json("timing.json", {"training_seconds": 2.0, "evaluation_seconds": 0.5})
        trial.finish()
    return load_results(path)
