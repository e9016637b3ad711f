"""Records of a study as `run` writes them, with the scores that a test wants, without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.analysis import tuning_record
from paribus.decision import own_rule
from paribus.engine.data import load_dataset
from paribus.engine.evaluation.harness.outcome import CELLS, ITEMS
from paribus.engine.evaluation.measures import all_measures
from paribus.engine.execution.trial.endpoints import endpoint_metrics, possible
from paribus.engine.probes import shipped_probes
from paribus.engine.setting import curve_steps
from paribus.engine.training import DRAWINGS
from paribus.results import (
    Results,
    ResultsFolder,
    TrialFolder,
    extended,
    load_results,
    registration,
    settle,
)
from paribus.results.formats import write_table
from paribus.rng import stream
from paribus.runs.queue import Missing
from paribus.runs.trainer_runner import TrainerRunner
from paribus.study import Study, measuring_record, own_digests, tuning_study, with_choice


def registered(
    study: Study, data: dict[str, Any], device: str = "cpu", tasks: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The registration of `study`, with its endpoints as its code declares them."""
    metrics, rule = endpoint_metrics(study), own_rule(study)
    return registration(study, data, device, metrics, tasks or {}, rule)


def write_results(
    path: Path,
    study: Study,
    loss: Callable[[str, int], float],
    *,
    skip: Collection[tuple[str, int]] = (),
    curve: Callable[[str, int], np.ndarray] | None = None,
    diverged: Collection[tuple[str, int]] = (),
    calibration: Callable[[str], float] = lambda arm: 0.01,
    probes: Collection[str] | None = None,
    heldout: Callable[[str, int, np.ndarray], np.ndarray] | None = None,
) -> Results:
    """Records of every trial with the scores that a test wants: `loss(arm, seed)`, or none.

    `probes` are the ones that measured, and by default all that a report draws. `heldout(arm, seed,
    steps)` are the losses of the points of a held-out curve, where the study has one.
    """
    folder = ResultsFolder(path)
    dataset = load_dataset(study.data, study.folder)
    settle(folder, study, registered(study, dict.fromkeys(study.arms, dataset.record)))
    declared = {name: metric.metadata for name, metric in possible(study).items()}
    shipped = [drawing for probe in shipped_probes().values() for drawing in probe.drawn]
    shipped += [one for measure in all_measures() for one in measure.drawn]
    for arm, seed in study.trials:
        if (arm, seed) in skip:
            continue
        trial, setting, value = folder.trial(arm, seed), study.setting(arm), loss(arm, seed)
        steps = setting.iterations
        losses = curve(arm, seed) if curve else np.linspace(3, 2, steps)
        _write_steps(trial, losses)
        points = np.array(curve_steps(study, arm), dtype=np.int64)
        along = heldout(arm, seed, points) if heldout else np.linspace(3, value, len(points))
        trial.write_columns(
            "curve.parquet",
            {"step": points, "loss_sum_nats": 320 * along, "predicted": np.full(len(points), 320)},
        )
        columns = _probes(setting.model.n_layer, only=probes)
        _write_probes(trial, steps, columns)
        predicted = np.full(20, 16)
        correct = stream(seed, arm, "hits").integers(2, 9, size=20)
        trial.write_columns(
            "blocks.parquet",
            {
                "loss_sum_nats": value * predicted,
                "brier_sum": 0.6 * predicted,
                "correct": correct,
                "predicted": predicted,
                "characters": predicted,
            },
        )
        recorded = ("train_loss", "grad_norm", *columns, *_write_measures(trial, value))
        drawings = (drawing.recorded(recorded) for drawing in (*DRAWINGS, *shipped))
        for name, table in (("tasks.parquet", CELLS), ("items.parquet", ITEMS)):
            write_table(trial.path / name, table.empty_table())
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
                "consumed": {"sources": {}},
                "batch_digest": f"batches of {seed}",
                "causality": {"training": 0.0, "evaluation": 0.0, "positions": 1.0},
                "blocks": {"kind": "window", "items": 20, "blocks": 20},
                "parameters": 12_345,
                "tokens": setting.tokens,
                "flops": {"per_token": 500 * setting.model.n_layer, "by": "formula"},
                "iterations": steps,
                "own_modules": own_digests(setting, study.folder),
                **measuring_record(study),
                "metrics": declared,
                "drawings": [asdict(drawing) for drawing in drawings if drawing],
                "diverged_at": steps // 2 if (arm, seed) in diverged else None,
            },
        )
        environment = {"packages": {"torch": "2"}, "device": "cpu", "threads": 1, "stack": 1}
        environment["kernels"] = "torch"
        trial.write_json("environment.json", environment)
        trial.write_json("timing.json", {"training_seconds": 2.0})
        trial.finish()
    return load_results(path)


def run_here(study: Study, path: Path, *, stops_after: int | None = None) -> Results:
    """All that a run of a trainer of the user's own leaves, in this process; interrupted after so
    many trials of a stage."""
    runner, folder = TrainerRunner(None), ResultsFolder(path)
    with folder.lock():
        while True:
            try:
                runner.go_through(study, folder)
                return load_results(path, trust=True)
            except Missing as missing:
                trials = [trial for task in missing.tasks for trial in task.trials]
                home = ResultsFolder(Path(missing.tasks[0].home))
                runner.run_trials(extended(study, folder), home, trials[:stops_after])
                if stops_after is not None and stops_after < len(trials):
                    raise KeyboardInterrupt from None


def register_here(study: Study, path: Path) -> None:
    """What registering such a study leaves."""
    runner, folder = TrainerRunner(None), ResultsFolder(path)
    with folder.lock():
        runner.register(runner.open(study, folder), folder)


def _write_steps(trial: TrialFolder, losses: np.ndarray) -> None:
    n = len(losses)
    trial.write_columns(
        "steps.parquet",
        {"step": np.arange(1, n + 1), "train_loss": losses, "grad_norm": np.full(n, 1.0)},
    )


def _probes(n_layer: int, *, only: Collection[str] | None) -> dict[str, float]:
    """A constant value for every column of the probes that declare drawings."""
    depths = [*(f"block {i + 1}" for i in range(n_layer)), "output"]
    groups = ("embedding", "positions", "attention", "mlp", "norms")
    quantiles = ("mean", "q05", "q25", "q75", "q95")
    columns = {
        **{f"embedding_norm/{c}/{s}": 11.3 for c in ("all", "alphabetic") for s in quantiles},
        **{f"residual_norm/{depth}/mean": 12.0 for depth in depths},
        **{f"position_similarity/{depth}/plain": 0.2 for depth in depths},
        "embedding_similarity/tokens/plain": 0.01,
        "logits/all/mean magnitude": 1.5,
        "logits/all/max magnitude": 4.0,
        **{f"gradient_norm/{group}/value": 0.3 for group in groups},
        **{f"optimizer_slots/exp_avg_sq {group}/mean": 1e-5 for group in groups},
        **{f"update_ratio/{group}/value": 1e-2 for group in groups},
    }
    return {k: v for k, v in columns.items() if only is None or k.split("/")[0] in only}


def _write_probes(trial: TrialFolder, steps: int, kept: dict[str, float]) -> None:
    names = ("probe", "part", "statistic", "unit")
    labels = {
        key: dict(zip(names, [*[*key.split("/"), "value"][:3], "1"], strict=True)) for key in kept
    }
    values = {key: np.full(steps, value, "f4") for key, value in kept.items()}
    trial.write_columns(
        "probes.parquet",
        {"step": np.arange(1, steps + 1, dtype=np.int32)} | values,
        labels,
    )


def _write_measures(trial: TrialFolder, loss: float) -> list[str]:
    """Held-out measures in all the parts that a report draws; returns these."""
    rows = [("validation_loss", "all", loss)]
    rows += [("validation_loss", f"position {p}", loss + 0.01 * p) for p in range(1, 17)]
    rows += [("validation_loss", c, loss + 0.1) for c in ("alphabetic", "whitespace")]
    rows += [("context_loss", f"context {c}", loss - 0.01 * c) for c in (8, 16)]
    for temperature in (0.5, 1.0, 2.0):
        distance = abs(math.log(temperature))
        rows.append(("temperature_loss", f"T={temperature:g}", loss + distance))
        rows.append(("temperature_calibration_error", f"T={temperature:g}", 0.02 + distance))
    for b in range(1, 5):
        rows.append(("reliability_confidence", f"bin {b}", 0.2 * b))
        rows.append(("reliability_accuracy", f"bin {b}", 0.19 * b))
    values = np.array([value for *_, value in rows])
    trial.write_columns(
        "evaluation.parquet",
        {
            "measure": np.array([row[0] for row in rows]),
            "part": np.array([row[1] for row in rows]),
            "value": values,
            "total": values * 100,
            "count": np.full(len(rows), 100.0),
            "unit": np.array(["1"] * len(rows)),
        },
    )
    return [f"{measure}/{part}" for measure, part, _ in rows]


RATE = "training.optimizer.learning_rate"
Loss = Callable[[str, Any, int], float]
# By arm, where in log10 of the rate its loss is least.
BEST = {"baseline": -3.0, "layernorm": -2.0}
ARMS = {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}}


def surface(arm: str, rate: float, seed: int) -> float:
    """A parabola in the logarithm of the rate; the arms are equally good, each at its best."""
    return 2.0 + 0.1 * (math.log10(rate) - BEST[arm]) ** 2 + 0.001 * math.sin(7 * seed)


def rate_of(setting: Any) -> Any:
    """What the surface depends on."""
    return setting.training.optimizer.learning_rate


def tune_by(study: Study, path: Path, loss: Loss, at: Callable[[Any], Any] = rate_of) -> Results:
    """The tuning trials that the plan asks for, with the records that training would leave."""
    made = tuning_study(study)

    def of(arm: str, seed: int) -> float:
        return loss(arm.rpartition("-")[0], at(made.setting(arm)), seed)

    return write_results(ResultsFolder(path).tuning_trials.path, made, of)


def tuned_and_trained(
    study: Study, path: Path, loss: Loss = surface, at: Callable[[Any], Any] = rate_of
) -> Results:
    """All that a run leaves: the registration, tuning trials, the choice, the verdict's trials.

    `loss` is of an arm, what `at` gives of its setting, and a seed.
    """
    folder = ResultsFolder(path)
    dataset = load_dataset(study.data, study.folder)
    settle(folder, study, registered(study, dict.fromkeys(study.arms, dataset.record)))
    record = tuning_record(study, tune_by(study, path, loss, at))
    folder.seal("tuning.json", record)
    chosen = {arm: one["values"] for arm, one in record["chosen"].items()}
    made = with_choice(study, chosen)
    folder.create(made)
    return write_results(path, made, lambda a, seed: loss(a, at(made.setting(a)), seed))


def tables(rates: list[float], **more: Any) -> dict[str, Any]:
    plan = {"seeds": [101, 102], "grid": {RATE: rates}} | more
    return {"arms": ARMS, "seeds": [1, 2, 3, 4, 5], "tasks": {"names": []}, "tuning": plan}


def write_answers(
    trial: TrialFolder, rows: list[dict[str, Any]], cells: list[dict[str, Any]]
) -> None:
    """Give a trial these answers, and the macro accuracy of its cells."""
    write_table(trial.path / "items.parquet", pa.Table.from_pylist(rows, schema=ITEMS))
    write_table(trial.path / "tasks.parquet", pa.Table.from_pylist(cells, schema=CELLS))
    by_task: dict[str, list[float]] = {}
    for cell in cells:
        by_task.setdefault(cell["task"], []).append(float(cell["accuracy"]))
    macro = float(np.mean([np.mean(shares) for shares in by_task.values()]))
    trial.write_json(
        "evaluation.json", trial.read_json("evaluation.json") | {"macro_accuracy": macro}
    )
    trial.finish()


def write_blocks(
    trial: TrialFolder, sums: dict[str, Any], kind: str = "window", **scores: float
) -> None:
    """Give a trial these sums over blocks of its held-out text, and scores that follow."""
    columns = {name: np.asarray(values) for name, values in sums.items()}
    n = len(columns["predicted"])
    missing = {"brier_sum": 0.5 * columns["predicted"], "characters": columns["predicted"]}
    columns = columns | {name: of for name, of in missing.items() if name not in columns}
    trial.write_columns("blocks.parquet", columns)
    trial.write_json("evaluation.json", trial.read_json("evaluation.json") | scores)
    blocks = {"kind": kind, "items": n, "blocks": n}
    trial.write_json("trial.json", trial.read_json("trial.json") | {"blocks": blocks})
    trial.finish()
