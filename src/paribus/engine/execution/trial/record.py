"""The records of a finished trial: everything that is computed from its weights, and its seal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.drawing import Drawing
from paribus.engine.data import TOKEN_CLASSES, Dataset, consumption
from paribus.engine.evaluation import (
    Evaluation,
    evaluate_on,
    own_measures,
)
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
from paribus.engine.model import GPT, build_model, describe_parts, load_parameters, training_flops
from paribus.engine.setting import Setting
from paribus.engine.training import DRAWINGS, ReplicaState, Trainer, auxiliary_drawing
from paribus.results import TrialFolder
from paribus.results.formats import write_table
from paribus.study import Study, measuring_record, own_digests


@dataclass(frozen=True)
class TrainedStack:
    """A stack at its last step, and how it was trained.

    Attributes:
        trials: (arm, seed) of each replica.
        suite: the folder of the study's tasks; None if it has none.
        seconds: training time of the whole stack.
        curve: the held-out loss along the way.
        earlier_machines: other machines on which some of its steps were trained.
    """

    study: Study
    dataset: Dataset
    trainer: Trainer
    trials: Sequence[tuple[str, int]]
    suite: Path | None
    seconds: float
    curve: HeldOutCurve
    earlier_machines: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class _Evaluated:
    """The scores of a trial's weights, and how long they took to compute.

    Attributes:
        code: the code length; None if the study does not compare it.
        causality: what was measured when the model was shown to be causal, or why it was not.
    """

    weights: Mapping[str, np.ndarray]
    heldout: Evaluation
    code: CodeLength | None
    tasks: TaskResults | None
    causality: dict[str, Any]
    heldout_seconds: float
    task_seconds: float


def record(stack: TrainedStack, todo: Sequence[tuple[int, TrialFolder]]) -> None:
    """Evaluate replicas of a trained stack and write their records; a manifest seals each."""
    for replica, folder in todo:
        _write(stack, replica, folder, _evaluate(stack, replica, folder.label))


def _write(stack: TrainedStack, replica: int, folder: TrialFolder, evaluated: _Evaluated) -> None:
    trainer, n_replicas = stack.trainer, len(stack.trials)
    state = trainer.history(replica)
    scores = heldout_scores(evaluated.heldout, evaluated.code)
    scores |= evaluated.tasks.headline if evaluated.tasks else {}
    here = environment(trainer.device, n_replicas)
    if trainer.ranks is not None:
        here["ranks"] = trainer.ranks.size
    if stack.earlier_machines:
        here["resumed_from"] = list(stack.earlier_machines)
    _write_steps(folder, trainer, state)
    stack.curve.write(folder, replica)
    write_evaluation(folder, evaluated.heldout)
    write_tasks(folder, evaluated.tasks)
    folder.write_json("evaluation.json", plain(scores))
    folder.write_weights(evaluated.weights)
    folder.write_json("trial.json", _trial_record(stack, replica, folder, state, evaluated))
    folder.write_json("environment.json", here)
    timing = {
        "training_seconds": stack.seconds / n_replicas,  # each replica is charged its share
        "evaluation_seconds": evaluated.heldout_seconds,
        "task_seconds": evaluated.task_seconds,
        "curve_seconds": stack.curve.seconds,
    }
    folder.write_json("timing.json", timing)
    folder.finish()


def _evaluate(stack: TrainedStack, replica: int, label: str) -> _Evaluated:
    """Evaluate a trial's weights, after a check that its model is causal."""
    study, dataset, setting = stack.study, stack.dataset, stack.trainer.settings[replica]
    weights = stack.trainer.parameters(replica)
    began = time.monotonic()
    model = build_model(setting, dataset.vocab_size, study.folder).to(stack.trainer.device)
    load_parameters(model, weights)
    causality = _check_causality(stack, replica, f"trial {label}", model)
    heldout, code = evaluate_text(study, model, dataset, setting.data.seq_len)
    evaluated = time.monotonic()
    outcome = None
    if stack.suite:
        free_unused(stack.trainer.device)  # tasks allocate as much again, in other sizes
        outcome = run_tasks(study, model, dataset, setting, stack.suite)
    task_seconds = time.monotonic() - evaluated
    return _Evaluated(weights, heldout, code, outcome, causality, evaluated - began, task_seconds)


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


def _check_causality(stack: TrainedStack, replica: int, where: str, model: GPT) -> dict[str, Any]:
    """Return the causality record of trial.json. A trial that diverged may fail the check."""
    try:
        checked = require_causal(where, model, stack.trainer.settings[replica], stack.dataset)
    except NotCausalError as error:
        if not has_diverged(stack.study, stack.trainer, replica):
            raise
        return {"not_proven": f"it diverged, and a log-probability moves by {error.nats:.3g} nats"}
    return {"evaluation": checked.nats, "positions": checked.positions}


def _trial_record(
    stack: TrainedStack,
    replica: int,
    folder: TrialFolder,
    state: ReplicaState,
    evaluated: _Evaluated,
) -> dict[str, Any]:
    """Return trial.json: what was trained, on what, and evidence that nothing else differed."""
    study, dataset, trainer = stack.study, stack.dataset, stack.trainer
    setting = trainer.settings[replica]
    return {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": setting.model_dump(mode="json"),
        "parts": describe_parts(setting.model),
        "own_modules": own_digests(setting, study.folder),
        **measuring_record(study),
        "metrics": measured_metrics(study, trainer, tasks=evaluated.tasks is not None),
        "drawings": [
            drawing.about for drawing in recorded_drawings(study, trainer, evaluated.heldout)
        ],
        "probes": {probe.name: {"every": probe.every} for probe in trainer.probes},
        "data": dataset.record,
        "blocks": evaluated.heldout.blocks.record,
        "parameters": sum(value.size for value in evaluated.weights.values()),
        "iterations": state.t,
        "tokens": setting.tokens_before(state.t),
        "flops": training_flops(setting, dataset.vocab_size, study.folder).record,
        "optimizer": trainer.replicas.optimizer_record,
        "batch_digest": state.batch_digest,
        "tasks": evaluated.tasks.about if evaluated.tasks else {},
        "causality": evaluated.causality,
        "code_length": plain(evaluated.code.about) if evaluated.code else {},
        "consumed": _consumed(setting, folder.seed, dataset),
        "diverged_at": state.diverged_at,
        # Trials that are still missing, or trained again, are trained in the same stack.
        "stack": [list(trial) for trial in stack.trials],
    }


def measured_metrics(study: Study, stack: Trainer, *, tasks: bool) -> dict[str, Any]:
    """Return the declarations of all that the trials of `stack` measured, by name."""
    first: dict[str, str] = {}
    for column in stack.probe_columns:
        first.setdefault(column.probe, column.name)
    probes = [(probe, first[probe.name]) for probe in stack.probes if probe.name in first]
    found = declarations(study, probes, tuple(stack.columns), tasks=tasks)
    return {name: metric.about for name, metric in found.items()}


def recorded_drawings(study: Study, stack: Trainer, heldout: Evaluation) -> list[Drawing]:
    """Return the drawings of what a trial of `stack` recorded: steps, probes and measures."""
    columns = [*stack.columns, *(column.name for column in stack.probe_columns)]
    columns += [f"{row.measure}/{row.part}" for row in heldout.rows]
    own = own_measures(study.evaluation.own, study.folder, strict=False)
    seq_len = stack.setting.data.seq_len
    drawings = [*DRAWINGS, *map(auxiliary_drawing, stack.replicas.auxiliaries)]
    drawings += [*(drawing for probe in stack.probes for drawing in probe.drawn)]
    for measure in (*all_measures(), *own):
        drawings += measure.drawn(seq_len)
    return [there for drawing in drawings if (there := drawing.recorded(columns))]


def _write_steps(folder: TrialFolder, stack: Trainer, state: ReplicaState) -> None:
    """steps.parquet, and probes.parquet with a row for every step at which a probe was due."""
    step = np.arange(1, state.t + 1, dtype=np.int32)
    columns = {name: state.measured[:, c] for c, name in enumerate(stack.columns)}
    folder.write_columns("steps.parquet", {"step": step} | columns, {"step": "1"} | stack.columns)

    measured = state.measured[:, len(stack.columns) :]
    there = ~np.isnan(measured)
    rows = there.any(axis=1)
    values = {"step": step[rows]}
    units, labels = {"step": "1"}, {}
    for c, column in enumerate(stack.probe_columns):
        if there[:, c].any():
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
    rows = [asdict(row) for row in evaluation.rows]
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
        values = [row[name] for row in rows]
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
