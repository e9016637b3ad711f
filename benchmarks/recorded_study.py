"""Generation of synthetic results folders of any size, without training.

A small study with one arm and one seed is trained as a template. Synthetic trials contain the
template's records with other numbers: scores, losses and probes are multiplied by noise that is a
function of (arm, seed), some answers are flipped, and digests depend on the seed. A synthetic
folder passes all checks by readers and `paribus verify`, except the recomputation of initial
values.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import paribus
from paribus.decision import own_rule
from paribus.engine.data import load_dataset
from paribus.engine.evaluation.harness.outcome import CELLS
from paribus.engine.execution.trial.endpoints import endpoint_metrics
from paribus.results import Results, ResultsFolder, TrialFolder, registration, settle
from paribus.results.formats import write_table
from paribus.rng import stream
from paribus.study import Study, parse_study

# The shape of `quickstart` but for the width and the batch, which no record grows with: weights
# would be all that is read and written.
TEMPLATE: dict[str, Any] = {
    "name": "template",
    "seeds": [1],
    "endpoints": [
        {"metric": "validation_loss", "primary": True, "margin": 0.02},
        {"metric": "macro_accuracy", "primary": True, "margin": 0.005},
        *(
            {"metric": metric}
            for metric in (
                *("validation_perplexity", "validation_accuracy", "calibration_error"),
                *("brier_score", "grad_norm", "embedding_norm"),
            )
        ),
    ],
    "data": {"corpus": "pydoc", "seq_len": 128},
    "model": {"n_layer": 8, "n_head": 2, "d_model": 16},
    "training": {"iterations": 55, "batch_size": 2},
    "evaluation": {"every": 10, "curve_tokens": 1024},
    "tasks": {"items": 32},
    "arms": {"baseline": {}},
}
SPREAD = 0.01  # of a seed, as a share of each number
UNMOVED = {"step", "predicted", "characters", "learning_rate"}
EFFECT = 0.002  # of an arm over the one before it, in the same unit


def made_study(n_trials: int, n_arms: int) -> Study:
    """Create a study with `n_trials` trials, whose arms differ in their learning rates."""
    rate = "training.optimizer.learning_rate"
    arms: dict[str, Any] = {"baseline": {}}
    for i in range(1, n_arms):
        arms[f"rate-{i}"] = {"set": {rate: 3e-4 * (1 + i / n_arms)}}
    seeds = list(range(1, n_trials // n_arms + 1))
    return parse_study(TEMPLATE | {"name": "recorded", "arms": arms, "seeds": seeds}, folder=Path())


def train_template(path: Path) -> Results:
    """Train the template trial in the results folder `path`, unless it is finished."""
    alone = {"decision": {"unreachable": "accept"}}  # nothing is compared
    study = parse_study(TEMPLATE | alone, folder=Path())
    if not ResultsFolder(path).trial("baseline", 1).is_finished:
        paribus.run(study, path, workers=1, device="cpu")
    return paribus.load_results(path)


def make(path: Path, study: Study, template: Results, *, leave: int = 0) -> None:
    """Write a synthetic results folder to `path`, leaving the last `leave` trials unfinished."""
    sync, os.fsync = os.fsync, lambda file: None  # no made record has to survive a power cut
    try:
        _make(ResultsFolder(path), study, template, leave)
    finally:
        os.fsync = sync


def _make(folder: ResultsFolder, study: Study, template: Results, leave: int) -> None:
    record = load_dataset(study.data, study.folder).record
    registered = ResultsFolder(template.path)
    settled = registration(
        study,
        dict.fromkeys(study.arms, record),
        "cpu",
        endpoint_metrics(study),
        _registered_tasks(template),
        own_rule(study),
    )
    settle(folder, study, settled)
    shutil.copytree(registered.path / "tasks", folder.path / "tasks", dirs_exist_ok=True)
    folder.write_data(registered.read_data())
    source = _Trial(template)
    settings = {arm: study.setting(arm).model_dump(mode="json") for arm in study.arms}
    trials = study.trials[: len(study.trials) - leave]
    for arm, seed in trials:
        effect = EFFECT * list(study.arms).index(arm)
        source.write(folder.trial(arm, seed), settings[arm], effect)
    if not leave:
        _write_throughput(folder, template, trials)


def _registered_tasks(template: Results) -> dict[str, Any]:
    from paribus.results import read_registration

    return (read_registration(ResultsFolder(template.path)) or {})["tasks"]


def _write_throughput(folder: ResultsFolder, template: Results, trials: list) -> None:
    rows = template.throughput.to_pylist()
    made = [
        row | {"arm": arm, "seed": seed, "seconds": row["seconds"] * _noise(arm, seed, row["kind"])}
        for arm, seed in trials
        for row in rows
    ]
    columns = {name: np.array([row[name] for row in made]) for name in rows[0]}
    columns["bytes"] = columns["bytes"].astype(float)
    folder.write_columns("throughput.parquet", columns)


def _noise(arm: str, seed: int, what: str) -> float:
    return float(1 + SPREAD * stream(seed, arm, what).normal())


class _Trial:
    """Records of the template trial, and a writer of synthetic trials."""

    def __init__(self, template: Results) -> None:
        (trial,) = template.finished
        self.json = {
            name: trial.read_json(f"{name}.json")
            for name in ("trial", "initial", "evaluation", "environment", "timing")
        }
        self.tables = {
            name: trial.read_columns(f"{name}.parquet")
            for name in ("steps", "probes", "curve", "evaluation", "blocks", "tasks", "items")
        }
        self.weights = trial.read_weights()

    def write(self, trial: TrialFolder, setting: dict[str, Any], effect: float) -> None:
        """Write all records of a synthetic trial, and its manifest."""
        rng = stream(trial.seed, trial.arm, "recorded")
        # Of one seed, arms have most of their noise in common.
        shared = SPREAD * stream(trial.seed, "luck").normal()
        luck = 1 + shared + SPREAD / 5 * rng.normal() + effect
        right = self._right(luck)
        items = self._items(rng)
        cells = self._cells(items)
        write_table(trial.path / "items.parquet", items)
        write_table(trial.path / "tasks.parquet", cells)
        for name in ("steps", "probes", "curve", "blocks"):
            columns = dict.fromkeys(_floats(self.tables[name]) - UNMOVED, luck)
            if name == "steps":
                columns["learning_rate"] = _rate(setting) / _rate(self.json["trial"]["setting"])
            write_table(trial.path / f"{name}.parquet", self._moved(name, columns, rng))
        write_table(trial.path / "evaluation.parquet", self._measures(luck, right))
        trial.write_json("evaluation.json", self._scores(luck, right, cells))
        trial.write_json("initial.json", _drawn(self.json["initial"], trial.seed))
        about = {"arm": trial.arm, "seed": trial.seed, "setting": setting}
        about |= {"batch_digest": _digest("batches", trial.seed)}
        about |= {"stack": [[trial.arm, trial.seed]]}
        trial.write_json("trial.json", self.json["trial"] | about)
        trial.write_json("environment.json", self.json["environment"])
        trial.write_json("timing.json", self.json["timing"])
        trial.write_weights(self.weights)
        trial.finish()

    def _right(self, luck: float) -> int:
        """Return the number of correctly predicted tokens, which decreases with the loss."""
        return round(self.json["evaluation"]["correct"] * (2 - luck))

    def _moved(self, name: str, factors: Mapping[str, float], rng: np.random.Generator) -> pa.Table:
        """Return a table with columns multiplied by `factors`, and noise added to single steps."""
        table, arrays = self.tables[name], []
        for field in table.schema:
            column = table[field.name]
            if field.name in factors:
                values = column.to_numpy() * factors[field.name]
                if name == "steps" and field.name not in UNMOVED:
                    values = values * (1 + SPREAD * rng.normal(size=len(values)))
                column = pa.array(values, field.type, mask=np.isnan(values))
            arrays.append(column)
        if name == "blocks":
            right = table["correct"].to_numpy().copy()
            right[0] += self._right(factors["loss_sum_nats"]) - right.sum()
            arrays[table.schema.get_field_index("correct")] = pa.array(right)
        return pa.table(arrays, schema=table.schema)

    def _measures(self, luck: float, right: int) -> pa.Table:
        """Return evaluation.parquet with scaled values, and perplexity and accuracy recomputed."""
        rows = self.tables["evaluation"].to_pylist()
        for row in rows:
            if row["measure"] == "validation_perplexity":
                row["value"] = math.exp(math.log(row["value"]) * luck)
            elif row["measure"] == "validation_accuracy" and row["part"] == "all":
                row |= {"value": right / row["count"], "total": float(right)}
            elif row["measure"] != "validation_accuracy":
                row |= {k: row[k] and row[k] * luck for k in ("value", "total")}
        return pa.Table.from_pylist(rows, schema=self.tables["evaluation"].schema)

    def _scores(self, luck: float, right: int, cells: pa.Table) -> dict[str, Any]:
        """Return the content of evaluation.json, consistent with the trial's tables."""
        scores = dict(self.json["evaluation"])
        for name in ("loss_sum_nats", "validation_loss", "bits_per_character"):
            scores[name] *= luck
        for name in ("brier_score", "calibration_error"):
            scores[name] *= luck
        scores["validation_perplexity"] = math.exp(scores["validation_loss"])
        scores |= {"correct": right, "validation_accuracy": right / scores["predicted"]}
        by_task: dict[str, list[float]] = {}
        for row in cells.select(["task", "accuracy"]).to_pylist():
            by_task.setdefault(row["task"], []).append(row["accuracy"])
        means = [math.fsum(values) / len(values) for values in by_task.values()]
        return scores | {"macro_accuracy": math.fsum(means) / len(means)}

    def _items(self, rng: np.random.Generator) -> pa.Table:
        """Return the answers to questions, with a tenth of them flipped."""
        table = self.tables["items"]
        right = table["correct"].to_numpy() ^ (rng.random(len(table)) < 0.1)
        i = table.schema.get_field_index("correct")
        return table.set_column(i, table.schema.field(i), pa.array(right))

    def _cells(self, items: pa.Table) -> pa.Table:
        """Return a table with the accuracy per task and number of shots."""
        counts: dict[tuple[str, int], int] = {}
        names, shots = items["task"].to_pylist(), items["shots"].to_pylist()
        for task, n, right in zip(names, shots, items["correct"].to_pylist(), strict=True):
            counts[task, n] = counts.get((task, n), 0) + right
        rows = self.tables["tasks"].to_pylist()
        for row in rows:
            row["correct"] = counts[row["task"], row["shots"]]
            row["accuracy"] = row["correct"] / row["items"]
        return pa.Table.from_pylist(rows, schema=CELLS)


def _drawn(initial: dict[str, dict[str, Any]], seed: int) -> dict[str, dict[str, Any]]:
    """Return records of initial values, with seed-specific digests for random parameters."""
    return {
        name: about | ({"sha256": _digest(name, seed)} if "normal" in about["rule"] else {})
        for name, about in initial.items()
    }


def _rate(setting: Mapping[str, Any]) -> float:
    return setting["training"]["optimizer"]["learning_rate"]


def _floats(table: pa.Table) -> set[str]:
    return {field.name for field in table.schema if pa.types.is_floating(field.type)}


def _digest(*words: object) -> str:
    return hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()
