"""The records of a finished trial: everything that is computed from its weights, and its seal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from paribus.engine.evaluation.harness import CELLS, ITEMS, SharedRequests, TaskResults
from paribus.engine.evaluation.measures import all_measures
from paribus.engine.execution.trial.endpoints import declarations
from paribus.engine.execution.trial.heldout_curve import HeldOutCurve
from paribus.engine.execution.trial.questions import run_tasks
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
    """A stack at its last step, and what is known of how it came there.

    Attributes:
        study: what its trials are of.
        dataset: what it was trained on.
        trainer: its state.
        trials: who was trained in it, by replica.
        suite: where the study's tasks are; None where there are none.
        seconds: what training all of it took.
        curve: the held-out loss along the way.
        earlier_machines: others than this one, on which some of its steps were trained.
        requests: what its replicas are asked, prepared for all of them; None shares nothing.
    """

    study: Study
    dataset: Dataset
    trainer: Trainer
    trials: Sequence[tuple[str, int]]
    suite: Path | None
    seconds: float
    curve: HeldOutCurve
    earlier_machines: Sequence[dict[str, Any]] = ()
    requests: SharedRequests | None = None


@dataclass(frozen=True)
class _Evaluated:
    """Scores of the weights of one trial, and how long they took."""

    weights: Mapping[str, np.ndarray]
    heldout: Evaluation
    told: CodeLength | None  # where it is asked for
    tasks: TaskResults | None
    causality: dict[str, Any]  # what was seen when the weights read the past alone, or why not
    heldout_seconds: float
    task_seconds: float

    @property
    def scores(self) -> dict[str, float | None]:
        found = self.heldout.scores | (self.tasks.headline if self.tasks else {})
        return found | ({BITS_PER_BYTE.name: self.told.bits_per_byte} if self.told else {})


@dataclass(frozen=True)
class _Records:
    """All that is written of one trial; what is written asks neither the device nor own code."""

    state: ReplicaState
    evaluated: _Evaluated
    about: dict[str, Any]
    environment: dict[str, Any]
    timing: dict[str, Any]


def record(of: TrainedStack, todo: Sequence[tuple[int, TrialFolder]]) -> None:
    """Evaluate replicas of a trained stack and write their records; a manifest comes last in each.

    One is evaluated while the files of the one before are written, by one thread in the order of
    `todo`. At most one trial waits for it. Raises what writing raises, before another one is begun.
    """
    with ThreadPoolExecutor(1, "records") as writer:
        last: Future[None] | None = None
        for replica, folder in todo:
            records = _records(of, replica, folder)
            if last:
                last.result()
            last = writer.submit(_write, of, replica, folder, records)
        if last:
            last.result()


def _records(of: TrainedStack, replica: int, folder: TrialFolder) -> _Records:
    stack = of.trainer
    where = f"trial {folder.label}"
    evaluated, state = _evaluate(of, replica, where), stack.history(replica)
    return _Records(
        state,
        evaluated,
        _about(of, replica, folder, state, evaluated),
        environment(stack.device, len(of.trials))
        | ({} if stack.ranks is None else {"ranks": stack.ranks.size})
        | ({"resumed_from": list(of.earlier_machines)} if of.earlier_machines else {}),
        # Replicas of a stack share its time: each is charged its part.
        timing={
            "training_seconds": of.seconds / len(of.trials),
            "evaluation_seconds": evaluated.heldout_seconds,
            "task_seconds": evaluated.task_seconds,
            "curve_seconds": of.curve.seconds,
        },
    )


def _write(of: TrainedStack, replica: int, folder: TrialFolder, records: _Records) -> None:
    evaluated = records.evaluated
    _write_steps(folder, of.trainer, records.state)
    of.curve.write(folder, replica)
    write_evaluation(folder, evaluated.heldout)
    write_tasks(folder, evaluated.tasks)
    folder.write_json("evaluation.json", plain(evaluated.scores))
    folder.write_weights(evaluated.weights)
    folder.write_json("trial.json", records.about)
    folder.write_json("environment.json", records.environment)
    folder.write_json("timing.json", records.timing)
    folder.finish()


def _evaluate(of: TrainedStack, replica: int, where: str) -> _Evaluated:
    """Evaluate a trial's weights, as a model that is shown to read the past alone."""
    study, dataset, setting = of.study, of.dataset, of.trainer.settings[replica]
    weights = of.trainer.parameters(replica)
    began = time.monotonic()
    model = build_model(setting, dataset.vocab_size, study.folder).to(of.trainer.device)
    load_parameters(model, weights)
    causality = _reads_the_past(of, replica, where, model)
    own = own_measures(study.evaluation.own, study.folder, strict=False)
    about, precision = study.evaluation, study.evaluation.precision
    seq_len = setting.data.seq_len
    told, outcome = None, None
    heldout = evaluate_on(model, dataset, dataset.validation, seq_len, own, precision)
    if BITS_PER_BYTE.name in study.metrics:
        told = code_length(model, dataset, seq_len, about.overlap, precision)
        heldout = replace(heldout, blocks=heldout.blocks.with_others(told.blocks))
    heldout_seconds = time.monotonic() - began
    began = time.monotonic()
    if of.suite:
        free_unused(of.trainer.device)  # tasks take as much again, in other pieces
        outcome = run_tasks(study, model, dataset, setting, of.suite, of.requests)
    task_seconds = time.monotonic() - began
    return _Evaluated(weights, heldout, told, outcome, causality, heldout_seconds, task_seconds)


def has_diverged(study: Study, stack: Trainer, replica: int) -> bool:
    """Tell whether a replica of a trained stack diverged, by the rule of `study`."""
    from paribus.analysis import events_in  # and with it much that a first step does not need

    state = stack.history(replica)
    losses = state.measured[: state.t, list(stack.columns).index("train_loss")]
    return state.diverged_at is not None or (state.t > 0 and events_in(losses, study).diverged)


def _reads_the_past(of: TrainedStack, replica: int, where: str, model: GPT) -> dict[str, Any]:
    """Return what trial.json says of causality; of a trial that diverged, why it is not shown."""
    try:
        seen = require_causal(where, model, of.trainer.settings[replica], of.dataset)
    except NotCausalError as error:
        if not has_diverged(of.study, of.trainer, replica):
            raise
        return {"not_proven": f"it diverged, and a log-probability moves by {error.nats:.3g} nats"}
    return {"evaluation": seen.nats, "positions": seen.positions}


def _about(
    of: TrainedStack, replica: int, folder: TrialFolder, state: ReplicaState, evaluated: _Evaluated
) -> dict[str, Any]:
    """trial.json: what was trained, on what, and what shows that nothing else differed."""
    stack, setting = of.trainer, of.trainer.settings[replica]
    return {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": setting.model_dump(mode="json"),
        "parts": describe_parts(setting.model),
        "own_modules": own_digests(setting, of.study.folder),
        **measuring_record(of.study),
        "metrics": measured_metrics(of.study, stack, tasks=evaluated.tasks is not None),
        "drawings": [one.about for one in recorded_drawings(of.study, stack, evaluated.heldout)],
        "probes": {probe.name: {"every": probe.every} for probe in stack.probes},
        "data": of.dataset.record,
        "blocks": evaluated.heldout.blocks.record,
        "parameters": sum(value.size for value in evaluated.weights.values()),
        "iterations": state.t,
        "tokens": setting.tokens_before(state.t),
        "flops": training_flops(setting, of.dataset.vocab_size, of.study.folder).record,
        "optimizer": stack.replicas.optimizer_record,
        "batch_digest": state.batch_digest,
        "tasks": evaluated.tasks.about if evaluated.tasks else {},
        "causality": evaluated.causality,
        "code_length": plain(evaluated.told.about) if evaluated.told else {},
        "consumed": _consumed(setting, folder.seed, of.dataset),
        "diverged_at": state.diverged_at,
        # Trained side by side; whoever is still missing, or trained again, is trained so too.
        "stack": [list(trial) for trial in of.trials],
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
