"""The records of a finished trial: everything that is computed from its weights, and its seal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.drawing import Drawing
from paribus.engine.cost import flops_record
from paribus.engine.data import TOKEN_CLASSES, Dataset, consumption
from paribus.engine.evaluation import Evaluation, evaluate_on, own_measures
from paribus.engine.evaluation.blocks import OF_OWN, UNITS
from paribus.engine.evaluation.causality import NotCausalError, require_causal
from paribus.engine.evaluation.code_length import BITS_PER_BYTE, CodeLength, code_length
from paribus.engine.evaluation.harness.outcome import CELLS, ITEMS, TaskResults
from paribus.engine.evaluation.measures import all_measures
from paribus.engine.execution.trial.endpoints import declarations
from paribus.engine.execution.trial.heldout_curve import HeldOutCurve
from paribus.engine.execution.trial.suite import run_tasks
from paribus.engine.machine.environment import environment
from paribus.engine.machine.memory import free_unused
from paribus.engine.model import GPT, build_model, describe_parts, load_parameters
from paribus.engine.setting import Setting
from paribus.engine.training import DRAWINGS, ReplicaState, Trainer, auxiliary_drawing
from paribus.results import TrialFolder
from paribus.results.formats import write_table
from paribus.study import Study, measuring_record, own_digests


def record(
    replica: int,
    folder: TrialFolder,
    *,
    study: Study,
    dataset: Dataset,
    trainer: Trainer,
    trials: Sequence[tuple[str, int]],
    seconds: float,
    curve: HeldOutCurve,
    suite: Path | None = None,
    earlier_machines: Sequence[dict[str, Any]] = (),
) -> None:
    """Evaluate a replica of a stack at its last step, and write and seal its records.

    Args:
        trials: (arm, seed) of each replica.
        seconds: training time of the whole stack.
        curve: the held-out loss along the way.
        suite: the folder of the study's tasks, if it has any.
        earlier_machines: other machines on which some of its steps were trained.
    """
    setting, n_replicas = trainer.settings[replica], len(trials)
    weights = trainer.parameters(replica)
    began = time.monotonic()
    model = build_model(setting, dataset.vocab_size, study.folder).to(trainer.device)
    load_parameters(model, weights)
    try:
        checked = require_causal(f"trial {folder.label}", model, setting, dataset)
        causality = {"evaluation": checked.nats, "positions": checked.positions}
    except NotCausalError as error:
        if not has_diverged(study, trainer, replica):
            raise
        nats = f"{error.nats:.3g} nats"
        causality = {"not_proven": f"it diverged, and a log-probability moves by {nats}"}
    heldout, code = evaluate_text(study, model, dataset, setting.data.seq_len)
    evaluated = time.monotonic()
    tasks = None
    if suite:
        free_unused(trainer.device)  # tasks allocate as much again, in other sizes
        tasks = run_tasks(study, model, dataset, setting, suite)
    asked = time.monotonic()

    state = trainer.history(replica)
    scores = heldout_scores(heldout, code) | (tasks.headline if tasks else {})
    _write_steps(folder, trainer, state)
    curve.write(folder, replica)
    write_evaluation(folder, heldout)
    write_tasks(folder, tasks)
    folder.write_json("evaluation.json", plain(scores))
    folder.write_weights(weights)
    first: dict[str, str] = {}
    for column in trainer.probe_columns:
        first.setdefault(column.probe, column.name)
    probes = [(probe, first[probe.name]) for probe in trainer.probes if probe.name in first]
    metrics = declarations(study, probes, tuple(trainer.columns), tasks=tasks is not None)
    trial = {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": setting.model_dump(mode="json"),
        "parts": describe_parts(setting.model),
        "own_modules": own_digests(setting, study.folder),
        **measuring_record(study),
        "metrics": {name: metric.about for name, metric in metrics.items()},
        "drawings": [drawing.about for drawing in _drawings(study, trainer, heldout)],
        "probes": {probe.name: {"every": probe.every} for probe in trainer.probes},
        "data": dataset.record,
        "blocks": heldout.blocks.record,
        "parameters": sum(value.size for value in weights.values()),
        "iterations": state.t,
        "tokens": setting.tokens_before(state.t),
        "flops": flops_record(setting, dataset.vocab_size, study.folder),
        "optimizer": trainer.replicas.optimizer_record,
        "batch_digest": state.batch_digest,
        "tasks": tasks.about if tasks else {},
        "causality": causality,
        "code_length": plain(code.about) if code else {},
        "consumed": _consumed(setting, folder.seed, dataset),
        "diverged_at": state.diverged_at,
        # Trials that are still missing, or trained again, are trained in the same stack.
        "stack": [list(trial) for trial in trials],
    }
    folder.write_json("trial.json", trial)
    machine = environment(trainer.device, n_replicas)
    if trainer.ranks is not None:
        machine["ranks"] = trainer.ranks.size
    if earlier_machines:
        machine["resumed_from"] = list(earlier_machines)
    folder.write_json("environment.json", machine)
    timing = {
        "training_seconds": seconds / n_replicas,  # each replica is charged its share
        "evaluation_seconds": evaluated - began,
        "task_seconds": asked - evaluated,
        "curve_seconds": curve.seconds,
    }
    folder.write_json("timing.json", timing)
    folder.finish()


def evaluate_text(
    study: Study, model: GPT, dataset: Dataset, seq_len: int
) -> tuple[Evaluation, CodeLength | None]:
    """Return the held-out measures of a model on the validation text of `dataset`, and the code
    length if the study compares it."""
    own = own_measures(study.evaluation.own, study.folder, strict=False)
    precision = study.evaluation.precision
    heldout = evaluate_on(model, dataset, dataset.validation, seq_len, own, precision)
    if BITS_PER_BYTE.name not in study.metrics:
        return heldout, None
    code = code_length(model, dataset, seq_len, study.evaluation.overlap, precision)
    return replace(heldout, blocks=heldout.blocks.with_others(code.blocks)), code


def heldout_scores(heldout: Evaluation, code: CodeLength | None) -> dict[str, float | None]:
    """Return the scores of held-out text by metric."""
    return dict(heldout.scores) | ({BITS_PER_BYTE.name: code.bits_per_byte} if code else {})


def has_diverged(study: Study, stack: Trainer, replica: int) -> bool:
    """Return whether a replica of a trained stack diverged, by the rule of `study`."""
    from paribus.analysis import events_in  # slow to import, and not needed before

    state = stack.history(replica)
    losses = state.measured[: state.t, list(stack.columns).index("train_loss")]
    return state.diverged_at is not None or (state.t > 0 and events_in(losses, study).diverged)


def _drawings(study: Study, trainer: Trainer, heldout: Evaluation) -> Iterator[Drawing]:
    """Yield the drawings of what a trial recorded: steps, probes and measures."""
    columns = [*trainer.columns, *(column.name for column in trainer.probe_columns)]
    columns += [f"{row.measure}/{row.part}" for row in heldout.rows]
    own = own_measures(study.evaluation.own, study.folder, strict=False)
    drawings = [*DRAWINGS, *map(auxiliary_drawing, trainer.replicas.auxiliaries)]
    drawings += [*(drawing for probe in trainer.probes for drawing in probe.drawn)]
    for measure in (*all_measures(), *own):
        drawings += measure.drawn(trainer.setting.data.seq_len)
    for drawing in drawings:
        if recorded := drawing.recorded(columns):
            yield recorded


def _write_steps(folder: TrialFolder, stack: Trainer, state: ReplicaState) -> None:
    """steps.parquet, and probes.parquet with a row for every step at which a probe was due."""
    step = np.arange(1, state.t + 1, dtype=np.int32)
    columns = {name: state.measured[:, c] for c, name in enumerate(stack.columns)}
    folder.write_columns("steps.parquet", {"step": step} | columns, {"step": "1"} | stack.columns)

    measured = state.measured[:, len(stack.columns) :]
    is_measured = ~np.isnan(measured)
    rows = is_measured.any(axis=1)
    values = {"step": step[rows]}
    units, labels = {"step": "1"}, {}
    for c, column in enumerate(stack.probe_columns):
        if is_measured[:, c].any():
            values[column.name] = measured[rows, c]
            units[column.name] = column.unit
            labels[column.name] = {
                "probe": column.probe,
                "part": column.part,
                "statistic": column.statistic,
            }
    folder.write_columns("probes.parquet", values, units, labels)


def write_evaluation(folder: TrialFolder, evaluation: Evaluation) -> None:
    """evaluation.parquet and blocks.parquet."""
    of_unit = "that of the row's column 'unit'"
    units = {
        "measure": "1",
        "part": "1",
        "value": of_unit,
        "total": f"{of_unit}, times tokens or characters",
        "count": "tokens or characters",
        "unit": "1",
    }
    columns: dict[str, Any] = {}
    for name in units:
        values = [getattr(row, name) for row in evaluation.rows]
        absent = None if name in ("measure", "part", "unit") else math.nan
        columns[name] = np.array([absent if value is None else value for value in values])
    folder.write_columns("evaluation.parquet", columns, units)
    columns = evaluation.blocks.columns
    units = {name: UNITS.get(name, OF_OWN) for name in columns}
    folder.write_columns("blocks.parquet", columns, units)


def write_tasks(folder: TrialFolder, outcome: TaskResults | None) -> None:
    """tasks.parquet, a row per task and shots, and items.parquet, one per question."""
    if outcome:
        items = outcome.items
        cells = pa.Table.from_pylist([plain(cell) for cell in outcome.cells], schema=CELLS)
    else:  # `empty_table` would import pandas, see `results.formats.column`
        items, cells = (pa.Table.from_batches([], schema=schema) for schema in (ITEMS, CELLS))
    write_table(folder.path / "items.parquet", items)
    write_table(folder.path / "tasks.parquet", cells)


def _consumed(setting: Setting, seed: int, dataset: Dataset) -> dict[str, Any]:
    """Targets by token class, and how many training tokens were seen 0, 1, 2, ... times.

    And of each source the windows, targets and bytes that were taken of it.
    """
    consumed = consumption(
        dataset.train,
        dataset.token_classes,
        seed,
        setting.budget_iterations,
        setting.training.largest_batch,
        setting.data.seq_len,
        dataset.windows,
    )
    return {
        "token_classes": dict(zip(TOKEN_CLASSES, consumed.targets.tolist(), strict=True)),
        "times_seen": consumed.times_seen.tolist(),
        "sources": consumed.sources(dataset.tokenizer.bytes_per_token),
    }


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with null where a number is not finite."""
    return dict(zip(table, finite(table.values()), strict=True))


def finite(values: Iterable[Any]) -> list[Any]:
    """Non-finite numbers become null: JSON has no word for them."""
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]
