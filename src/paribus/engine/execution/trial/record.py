"""The records of a finished trial, computed from its weights and sealed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from paribus.digests import plain
from paribus.drawing import Drawing
from paribus.engine.cost import flops_record
from paribus.engine.data import consumption
from paribus.engine.evaluation import Evaluation, own_measures
from paribus.engine.evaluation.causality import NotCausalError, require_causal
from paribus.engine.evaluation.measures import all_measures
from paribus.engine.execution.trial.endpoints import declarations
from paribus.engine.execution.trial.evaluation import (
    ask_tasks,
    evaluate_text,
    trained_model,
    write_evaluation,
    write_tasks,
)
from paribus.engine.execution.trial.suite import suite_folder
from paribus.engine.machine.environment import environment, free_unused
from paribus.engine.training import DRAWINGS, ReplicaState, Trainer, auxiliary_drawing
from paribus.results import TrialFolder
from paribus.runs.sealing import sealed_once
from paribus.study import Study, measuring_record, own_digests

if TYPE_CHECKING:
    from paribus.engine.execution.trial.trial import Stack


def record(stack: Stack, replica: int, folder: TrialFolder, seconds: float) -> None:
    """Evaluate a replica of a stack at its last step, and write and seal its records.

    `seconds` is the training time of the whole stack. The trial's folder is written atomically.
    """
    study, dataset, trainer = stack.study, stack.dataset, stack.trainer
    setting, n_replicas = trainer.settings[replica], len(trainer.seeds)
    weights = trainer.parameters(replica)
    began = time.monotonic()
    model = trained_model(study, folder.arm, dataset, trainer.device, weights)
    try:
        checked = require_causal(f"trial {folder.label}", model, setting, dataset)
        causality = {"evaluation": checked.nats, "positions": checked.positions}
    except NotCausalError as error:
        if not has_diverged(study, trainer, replica):
            raise
        nats = f"{error.nats:.3g} nats"
        causality = {"not_proven": f"it diverged, and a log-probability moves by {nats}"}
    heldout, scores, code_length = evaluate_text(study, model, dataset, setting.data.seq_len)
    evaluated = time.monotonic()
    tasks = None
    if suite := suite_folder(study, stack.results):
        free_unused(trainer.device)  # tasks allocate as much again, in other sizes
        tasks = ask_tasks(study, model, dataset, setting.data.seq_len, suite)
    asked = time.monotonic()

    with sealed_once(folder) as draft:
        state = trainer.history(replica)
        draft.write_json("initial.json", trainer.initial_records[replica])
        stack.checkpoints.copy_kept(folder, draft)
        _write_steps(draft, trainer, state)
        stack.curve.write(draft, replica)
        write_evaluation(draft, heldout)
        write_tasks(draft, tasks)
        draft.write_json("evaluation.json", plain(scores | (tasks.headline if tasks else {})))
        draft.write_weights(weights)
        first: dict[str, str] = {}
        for column in trainer.probe_columns:
            first.setdefault(column.probe, column.name)
        probes = [(probe, first[probe.name]) for probe in trainer.probes if probe.name in first]
        has_curve = study.evaluation.every is not None
        metrics = declarations(
            study, probes, tuple(trainer.columns), tasks=tasks is not None, curve=has_curve
        )
        trial = {
            "arm": folder.arm,
            "seed": folder.seed,
            "setting": setting.model_dump(mode="json"),
            "own_modules": own_digests(setting, study.folder),
            **measuring_record(study),
            "metrics": {name: metric.about for name, metric in metrics.items()},
            "drawings": [drawing.about for drawing in _drawings(study, trainer, heldout)],
            "probes": {probe.name: {"every": probe.every} for probe in trainer.probes},
            "data": dataset.record,
            "blocks": heldout.division.record,
            "parameters": sum(value.size for value in weights.values()),
            "iterations": state.t,
            "tokens": setting.tokens_before(state.t),
            "flops": flops_record(setting, dataset.vocab_size, study.folder),
            "batch_digest": state.batch_digest,
            "tasks": tasks.about if tasks else {},
            "causality": causality,
            "code_length": code_length,
            "consumed": consumption(
                dataset,
                folder.seed,
                setting.budget_iterations,
                setting.training.largest_batch,
                setting.data.seq_len,
            ),
            "diverged_at": state.diverged_at,
            # Trials that are still missing, or trained again, are trained in the same stack.
            "stack": [list(trial) for trial in stack.trials],
        }
        draft.write_json("trial.json", trial)
        machine = environment(trainer.device, n_replicas)
        if trainer.ranks is not None:
            machine["ranks"] = trainer.ranks.size
        if stack.earlier_machines:
            machine["resumed_from"] = stack.earlier_machines
        draft.write_json("environment.json", machine)
        timing = {
            "training_seconds": seconds / n_replicas,  # each replica is charged its share
            "evaluation_seconds": evaluated - began,
            "task_seconds": asked - evaluated,
        }
        draft.write_json("timing.json", timing)
        draft.finish()


def has_diverged(study: Study, trainer: Trainer, replica: int) -> bool:
    """Return whether a replica of a trained stack diverged, by the rule of `study`."""
    from paribus.analysis import events_in  # slow to import, and not needed before

    state = trainer.history(replica)
    losses = state.measured[: state.t, list(trainer.columns).index("train_loss")]
    return state.diverged_at is not None or (state.t > 0 and events_in(losses, study).diverged)


def _drawings(study: Study, trainer: Trainer, heldout: Evaluation) -> Iterator[Drawing]:
    """Yield the figures of the steps, probes and measures that a trial recorded."""
    columns = [*trainer.columns, *(column.name for column in trainer.probe_columns)]
    columns += [f"{row.measure}/{row.part}" for row in heldout.rows]
    drawings = [*DRAWINGS, *map(auxiliary_drawing, trainer.replicas.auxiliaries)]
    drawings += [drawing for probe in trainer.probes for drawing in probe.drawn]
    for measure in (*all_measures(), *own_measures(study.evaluation.own, study.folder)):
        drawings += measure.drawn
    for drawing in drawings:
        if recorded := drawing.recorded(columns):
            yield recorded


def _write_steps(folder: TrialFolder, trainer: Trainer, state: ReplicaState) -> None:
    """Write steps.parquet, and probes.parquet with a row for each step where a probe was due."""
    step, n_columns = np.arange(1, state.t + 1, dtype=np.int32), len(trainer.columns)
    columns = dict(zip(trainer.columns, state.measured.T[:n_columns], strict=True))
    folder.write_columns("steps.parquet", {"step": step} | columns, {"step": "1"} | trainer.columns)

    measured = state.measured[:, n_columns:]
    is_measured = ~np.isnan(measured)
    rows = is_measured.any(axis=1)
    values = {"step": step[rows]}
    units, labels = {"step": "1"}, {}
    for c, column in enumerate(trainer.probe_columns):
        if is_measured[:, c].any():
            values[column.name] = measured[rows, c]
            units[column.name] = column.unit
            parts = ("probe", "part", "statistic")
            labels[column.name] = {part: getattr(column, part) for part in parts}
    folder.write_columns("probes.parquet", values, units, labels)
