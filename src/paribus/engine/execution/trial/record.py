"""Held-out curves, evaluations and records of trials.

Weights are evaluated on held-out text, on the study's tasks, and on tasks requested later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from paribus.digests import plain
from paribus.drawing import Drawing
from paribus.engine.cost import model_size
from paribus.engine.data import Dataset, Tokens, consumption, open_test
from paribus.engine.evaluation import Evaluation, evaluate_on, own_measures
from paribus.engine.evaluation.causality import NotCausalError, require_causal
from paribus.engine.evaluation.harness.outcome import CELLS, ITEMS, TaskResults, together
from paribus.engine.evaluation.harness.standard import standard
from paribus.engine.evaluation.harness.task_runs import run_tasks, suite_tasks
from paribus.engine.evaluation.heldout import heldout_loss
from paribus.engine.evaluation.measures import all_measures
from paribus.engine.execution.evaluate import ANSWERS
from paribus.engine.execution.start import FOLDER, standard_data, suite_folder
from paribus.engine.execution.trial.endpoints import declarations
from paribus.engine.execution.trial.stacks import StackCheckpoints
from paribus.engine.machine.environment import environment, free_unused
from paribus.engine.model import GPT, build_model, load_parameters
from paribus.engine.setting import curve_steps
from paribus.engine.tasks import Pinned, read_standard, read_suite
from paribus.engine.training import DRAWINGS, ReplicaState, Trainer, auxiliary_drawing
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, TrialFolder
from paribus.results.curves import FILE
from paribus.results.formats import COLUMNS, write_table
from paribus.results.heldout_part import heldout_folder
from paribus.results.store import TEST_PART
from paribus.runs.sealing import sealed_once
from paribus.study import Study, measuring_record, own_digests
from paribus.study.trainer import Trial


class HeldOutCurve:
    """Held-out loss curve of a stack, measured between training steps.

    A point contains the loss of each replica on the first `evaluation.curve_tokens` tokens of the
    validation text. A separate float32 model computes the loss, so that training is not affected.
    The measurement is excluded from the training time. Replicas are evaluated one at a time, so
    that results do not depend on the stack. All arms of a stack share the model and the budget of
    `arm`.

    Attributes:
        points: points measured so far, in the format of checkpoints: {"step": t, "nats": losses},
            with each replica's summed loss in nats (None if not finite).
    """

    def __init__(self, study: Study, arm: str, dataset: Dataset, device: torch.device) -> None:
        self.points: list[dict[str, Any]] = []
        self._steps = frozenset(curve_steps(study, arm))
        self._study, self._arm, self._dataset, self._device = study, arm, dataset, device
        self._tokens = dataset.validation[: study.evaluation.curve_tokens + 1]

    def is_due(self, t: int) -> bool:
        """Return whether a point is due after t steps and has not been measured yet."""
        return t in self._steps and (not self.points or self.points[-1]["step"] < t)

    def measure(self, trainer: Trainer) -> float:
        """Add a point for the trainer's current step, and return the elapsed time in seconds."""
        began, sums, vocab_size = time.monotonic(), list[float](), self._dataset.vocab_size
        for replica in range(len(trainer.seeds)):
            weights = trainer.parameters(replica)
            model = trained_model(self._study, self._arm, self._dataset, self._device, weights)
            seq_len = trainer.setting.data.seq_len
            sums.append(heldout_loss(model, self._tokens, seq_len, vocab_size))
        self.points.append({"step": trainer.t, "nats": plain(sums)})
        return time.monotonic() - began

    def write(self, folder: TrialFolder, replica: int) -> None:
        """Write curve.parquet for a replica, with one row per point."""
        steps = [point["step"] for point in self.points]
        nats = [point["nats"][replica] for point in self.points]
        columns = {
            "step": np.array(steps, dtype=np.int64),
            "loss_sum_nats": np.array(nats, dtype=np.float64),  # None becomes NaN
            "predicted": np.full(len(steps), len(self._tokens) - 1, dtype=np.int64),
        }
        folder.write_columns(FILE, columns)


def trained_model(
    study: Study, arm: str, dataset: Dataset, device: torch.device, weights: Mapping[str, Any]
) -> GPT:
    """Build an arm's model and load `weights`."""
    model = build_model(study.setting(arm), dataset.vocab_size, study.folder).to(device)
    load_parameters(model, weights)
    return model


def evaluate_text(
    study: Study, model: GPT, dataset: Dataset, tokens: Tokens, seq_len: int
) -> Evaluation:
    """Evaluate a model on held-out tokens from `dataset`, with all measures of the study."""
    own = own_measures(study.evaluation.own, study.folder)
    return evaluate_on(model, dataset, tokens, seq_len, own, study.evaluation.precision)


def evaluate_heldout_part(
    study: Study, results: ResultsFolder, dataset: Dataset, device: torch.device, trial: Trial
) -> None:
    """Evaluate a finished trial on the test split, and write the scores to its held-out folder.

    The run must have opened the test split.
    """
    finished, folder = results.trial(*trial), heldout_folder(results, *trial)
    model = trained_model(study, trial[0], dataset, device, finished.read_weights())
    tokens = open_test(dataset.test, results.read_sealed(TEST_PART))
    heldout = evaluate_text(study, model, dataset, tokens, study.setting(trial[0]).data.seq_len)
    scores = heldout.scores
    write_evaluation(folder, heldout)
    # Other scores, such as accuracy on tasks, are unchanged.
    folder.write_json("evaluation.json", finished.read_json("evaluation.json") | plain(scores))
    summary = {"trial": finished.seal, "scores": sorted(scores), "blocks": heldout.division.record}
    folder.write_json("tested.json", summary)  # written last: its presence means evaluated


def ask_tasks(
    study: Study, model: torch.nn.Module, dataset: Dataset, seq_len: int, folder: Path
) -> TaskResults | None:
    """Evaluate a model on the tasks registered in `folder`, or return None if no task fits.

    Raises ParibusError if a standard task differs from its registration.
    """
    tasks, results = study.tasks, list[TaskResults]()
    reader = (model, dataset.tokenizer, seq_len)
    if tasks.names != ():
        suite = read_suite(folder)
        if any(n in task.shots for task in suite.find(tasks.names).values() for n in tasks.shots):
            asked = suite_tasks(suite, tasks.names, tasks.unknown)
            results.append(run_tasks(*reader, asked, tasks.shots, tasks.items))
    if tasks.standard:
        registered, n_items = read_standard(folder), tasks.standard_items
        asked = standard(list(registered), n_items, standard_data(study))
        results.append(run_tasks(*reader, asked, tasks.shots, n_items))
        for name, pins in results[-1].pins["tasks"].items():
            known = registered[name]
            differing = [key for key in Pinned.model_fields if pins[key] != getattr(known, key)]
            if differing:
                raise ParibusError(
                    f"task '{name}' differs from its registration in {', '.join(differing)}; "
                    "restore the registered data set and version of lm_eval"
                )
    return reduce(together, results) if results else None


def answer_request(
    study: Study,
    results: ResultsFolder,
    dataset: Dataset,
    device: torch.device,
    arguments: dict[str, Any],
) -> None:
    """Evaluate a finished trial on requested tasks, and write the results.

    Args:
        arguments: `arm` and `seed` of the trial, the `request` from `paribus.evaluate`, and `out`,
            the output folder.
    """
    arm, seed, request = (arguments[name] for name in ("arm", "seed", "request"))
    model = trained_model(study, arm, dataset, device, results.trial(arm, seed).read_weights())
    if request["standard"]:
        data = Path(request["data"]) if request["data"] else None
        asked = standard(request["tasks"], data_folder=data)
    else:
        suite = read_suite(results.path / FOLDER)
        asked = suite_tasks(suite, request["tasks"], study.tasks.unknown)
    seq_len = study.setting(arm).data.seq_len
    outcome = run_tasks(model, dataset.tokenizer, seq_len, asked, request["shots"])
    folder = TrialFolder(Path(arguments["out"]), arm, seed)
    write_tasks(folder, outcome)
    folder.write_json("about.json", outcome.metadata)
    folder.finish(ANSWERS)


def write_evaluation(folder: TrialFolder, evaluation: Evaluation) -> None:
    """Write evaluation.parquet and blocks.parquet to `folder`."""
    columns: dict[str, Any] = {}
    for name in COLUMNS["evaluation.parquet"]:
        values = [getattr(row, name) for row in evaluation.rows]
        columns[name] = np.array([math.nan if value is None else value for value in values])
    folder.write_columns("evaluation.parquet", columns)
    folder.write_columns("blocks.parquet", evaluation.blocks)


def write_tasks(folder: TrialFolder, outcome: TaskResults | None) -> None:
    """Write tasks.parquet and items.parquet to `folder`. Both are empty if no tasks were run.

    tasks.parquet has one row per task and number of shots, items.parquet one row per question.
    """
    if outcome:
        items = outcome.items
        cells = pa.Table.from_pylist([plain(cell) for cell in outcome.cells], schema=CELLS)
    else:  # `empty_table` would import pandas, see `results.formats.column`
        items, cells = (pa.Table.from_batches([], schema=schema) for schema in (ITEMS, CELLS))
    write_table(folder.path / "items.parquet", items)
    write_table(folder.path / "tasks.parquet", cells)


def record(
    study: Study,
    trainer: Trainer,
    replica: int,
    dataset: Dataset,
    folder: TrialFolder,
    checkpoints: StackCheckpoints,
    curve: HeldOutCurve,
    *,
    seconds: float,
    earlier_machines: Sequence[dict[str, Any]] = (),
) -> None:
    """Evaluate a replica of a stack after its last step, and write its records.

    The trial's folder is written atomically.

    Args:
        seconds: training time of the whole stack, in seconds.
        earlier_machines: other machines on which some of the steps were trained.
    """
    setting, n_replicas = trainer.settings[replica], len(trainer.seeds)
    weights = trainer.parameters(replica)
    model = trained_model(study, folder.arm, dataset, trainer.device, weights)
    try:
        checked = require_causal(f"trial {folder.label}", model, setting, dataset)
        causality = {"evaluation": checked.nats, "positions": checked.positions}
    except NotCausalError as error:
        if not has_diverged(study, trainer, replica):
            raise
        nats = f"{error.nats:.3g} nats"
        causality = {"not_proven": f"it diverged, and a log-probability changes by {nats}"}
    heldout = evaluate_text(study, model, dataset, dataset.validation, setting.data.seq_len)
    tasks = None
    if suite := suite_folder(study, ResultsFolder(checkpoints.results)):
        free_unused(trainer.device)  # tasks allocate as much again, in blocks of other sizes
        tasks = ask_tasks(study, model, dataset, setting.data.seq_len, suite)

    with sealed_once(folder) as draft:
        state = trainer.history(replica)
        draft.write_json("initial.json", trainer.replicas.initial_records[replica])
        checkpoints.copy_kept(folder, draft)
        _write_steps(draft, trainer, state)
        curve.write(draft, replica)
        write_evaluation(draft, heldout)
        write_tasks(draft, tasks)
        draft.write_json(
            "evaluation.json", plain(heldout.scores | (tasks.headline if tasks else {}))
        )
        draft.write_weights(weights)
        first = {column.probe: column.name for column in reversed(trainer.probe_columns)}
        has_curve = study.evaluation.every is not None
        metrics = declarations(
            study, first, trainer.columns, tasks=tasks is not None, curve=has_curve
        )
        parameters, flops = model_size(setting, dataset.vocab_size, study.folder)
        trial = {
            "arm": folder.arm,
            "seed": folder.seed,
            "setting": setting.model_dump(mode="json"),
            "own_modules": own_digests(setting, study.folder),
            **measuring_record(study),
            "metrics": {name: metric.metadata for name, metric in metrics.items()},
            "drawings": [asdict(drawing) for drawing in _drawings(study, trainer, heldout)],
            "data": dataset.record,
            "blocks": heldout.division.record,
            "parameters": parameters,
            "iterations": state.t,
            "tokens": setting.tokens_before(state.t),
            "flops": {} if flops is None else {"per_token": flops},
            "batch_digest": state.batch_digest,
            "tasks": tasks.metadata if tasks else {},
            "causality": causality,
            "consumed": consumption(
                dataset,
                folder.seed,
                setting.budget_iterations,
                setting.training.largest_batch,
                setting.data.seq_len,
            ),
            "diverged_at": state.diverged_at,
            # Trials that are missing or repeated later are trained in the same stack.
            "stack": [list(trial) for trial in checkpoints.trials],
        }
        draft.write_json("trial.json", trial)
        machine = environment(trainer.device, n_replicas)
        if trainer.ranks is not None:
            machine["ranks"] = trainer.ranks.size
        if earlier_machines:
            machine["resumed_from"] = earlier_machines
        draft.write_json("environment.json", machine)
        share = seconds / n_replicas  # an equal one for each replica
        draft.write_json("timing.json", {"training_seconds": share})
        draft.finish()


def has_diverged(study: Study, trainer: Trainer, replica: int) -> bool:
    """Return whether a trained replica diverged, according to the study's criterion."""
    from paribus.analysis import events_in  # slow to import, and not needed before

    state = trainer.history(replica)
    losses = state.measured[: state.t, list(trainer.columns).index("train_loss")]
    return state.diverged_at is not None or (state.t > 0 and events_in(losses, study).diverged)


def _drawings(study: Study, trainer: Trainer, heldout: Evaluation) -> Iterator[Drawing]:
    """Yield the figure specifications for which this trial recorded columns."""
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
    """Write steps.parquet, and probes.parquet with one row per step that a probe measured."""
    step, n_columns = np.arange(1, state.t + 1, dtype=np.int32), len(trainer.columns)
    columns = dict(zip(trainer.columns, state.measured.T[:n_columns], strict=True))
    folder.write_columns("steps.parquet", {"step": step} | columns)

    measured = state.measured[:, n_columns:]
    is_measured = ~np.isnan(measured)
    rows = is_measured.any(axis=1)
    values, labels = {"step": step[rows]}, {}
    for c, column in enumerate(trainer.probe_columns):
        if is_measured[:, c].any():
            values[column.name] = measured[rows, c]
            parts = ("probe", "part", "statistic", "unit")
            labels[column.name] = {part: getattr(column, part) for part in parts}
    folder.write_columns("probes.parquet", values, labels)
