"""What ranks do together for each task of a worker: one model over all of their devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from paribus.engine.data import Dataset, batch
from paribus.engine.execution.checks.dry_run import by_shapes, dry_run_over
from paribus.engine.execution.evaluate import answer_tasks_with
from paribus.engine.execution.trial.heldout_part import evaluate_heldout_with
from paribus.engine.execution.trial.record import finite
from paribus.engine.execution.trial.trial import StackTask, run_stack
from paribus.engine.execution.workers import messages
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.measurements import Fit, StepCost
from paribus.engine.machine.memory import device_memory, host_memory
from paribus.engine.machine.speed import model_size, timed
from paribus.engine.setting import rows_of
from paribus.engine.training import Trainer
from paribus.engine.training.ranks import Ranks
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.engine.execution.workers.worker import WorkerContext

STEPS = 3


def do(context: WorkerContext, ranks: Ranks, task: Any) -> object:
    """Do a task; every rank is given the same, and rank 0's answer is told."""
    match task:
        case messages.Prepare():
            return messages.Prepared(_turns(context, ranks).prepare(task.arm, task.seed))
        case messages.TakeTurn():
            return _turns(context, ranks).take(task.arm, task.kind)
        case messages.TrainAgain():
            # Bits depend on the number of ranks: nothing is promised of them.
            return messages.Comparison(elsewhere=["way of training: one model over devices"])
    study, results = context.study, context.results
    dataset = context.dataset(study.setting(task.arm).data)
    match task:
        case messages.Check(arm, _, "shapes"):
            return messages.Findings(by_shapes(study, arm, dataset))
        case messages.Check(arm, _, part):
            found = [] if part == "reading" else dry_run_over(study, arm, dataset, ranks)
            return messages.Findings(found)
        case messages.MeasureMemory():
            return Fit(1, "")
        case messages.CountModel(arm):
            size = model_size(study, arm, dataset)
            return replace(size, state_bytes=-(-size.state_bytes // ranks.size), too_large=False)
        case messages.MeasureStep(arm, _):
            return _measured(context, ranks, arm, dataset)
        case messages.Train():
            return _train(context, ranks, task, dataset)
        case messages.EvaluateHeldoutPart(arm, seed):
            trial = results.trial(arm, seed)
            model = _finished(context, ranks, arm, trial.read_weights(), dataset)
            evaluate_heldout_with(model, study, results, dataset, (arm, seed), ranks.is_first)
            ranks.wait()
            return messages.Finished()
        case messages.AnswerTasks():
            trial = results.trial(task.arm, task.seed)
            weights = trial.read_weights(**task.request.get("weights", {}))
            model = _finished(context, ranks, task.arm, weights, dataset)
            answer_tasks_with(model, study, results, dataset, task, ranks.is_first)
            ranks.wait()
            return messages.Finished()
    raise ParibusError(
        f"what was asked ({type(task).__name__}) is not offered of one model over devices; ask it "
        "of a machine that holds the model, with --set resources.devices_per_trial=null"
    )


def _train(
    context: WorkerContext, ranks: Ranks, task: messages.Train, dataset: Dataset
) -> messages.Finished | None:
    about = (context.study, task.trials, context.results, context.device)
    of = StackTask(*about, context.checkpoint_seconds, graphs=False, ranks=ranks)
    if len(task.trials) > 1:
        raise ParibusError("one model over devices is one trial; leave --stack out")
    done = run_stack(
        of,
        dataset,
        on_progress=lambda t, losses: context.tell(
            messages.Trained(task.trials, t, finite(losses))
        ),
        on_resume=lambda t, words: context.tell(messages.Resumed(task.trials, t, words)),
        leaving=context.leaving,
    )
    return messages.Finished() if done else None


def _trainer(context: WorkerContext, ranks: Ranks, arm: str, dataset: Dataset) -> Trainer:
    study = context.study
    about = (study, study.setting(arm), study.seeds[:1], dataset, context.device)
    return build_stack(*about, ranks=ranks)


def _finished(
    context: WorkerContext,
    ranks: Ranks,
    arm: str,
    weights: Mapping[str, np.ndarray],
    dataset: Dataset,
) -> Any:
    """Return the model of a finished trial, over all ranks."""
    trainer = _trainer(context, ranks, arm, dataset)
    trainer.load(weights)
    replica: Any = trainer.replicas
    return replica.reader()


def _measured(context: WorkerContext, ranks: Ranks, arm: str, dataset: Dataset) -> StepCost:
    """Time steps, and an evaluation of a window on each rank."""
    trainer = _trainer(context, ranks, arm, dataset)
    trainer.step()
    steps = [timed(trainer.step, context.device)[1] for _ in range(STEPS)]
    setting = context.study.setting(arm)
    replica: Any = trainer.replicas
    windows = batch(dataset.validation, 0, 0, ranks.size, setting.data.seq_len)[:, :-1]
    tokens = torch.from_numpy(windows).to(context.device)
    with replica.evaluating(), torch.no_grad():
        replica.reader()(tokens)
        _, seconds = timed(lambda: replica.reader()(tokens), context.device)
    in_use = device_memory(context.device)
    found = [float(np.median(steps)), seconds * len(dataset.validation) / tokens.numel()]
    slowest = np.max(ranks.of_all(found), axis=0)
    memory = max(ranks.of_all(host_memory() if in_use is None else in_use))
    return StepCost(True, float(slowest[0]), float(slowest[1]), int(memory))


class _Turns:
    """The arms that are timed in turn: their training, and reading a window on each rank."""

    def __init__(self, context: WorkerContext, ranks: Ranks) -> None:
        self._context, self._ranks = context, ranks
        self._trainers: dict[str, Trainer] = {}

    def prepare(self, arm: str, seed: int) -> list[str]:
        if arm not in self._trainers:
            dataset = self._context.dataset(self._context.study.setting(arm).data)
            self._trainers[arm] = _trainer(self._context, self._ranks, arm, dataset)
            self._trainers[arm].step()
        return ["prefill", "training"]

    def take(self, arm: str, kind: str) -> messages.Timed:
        context, trainer = self._context, self._trainers[arm]
        setting = context.study.setting(arm)
        if kind == "training":
            _, seconds = timed(trainer.step, context.device)
            return messages.Timed(setting.tokens_per_step, self._slowest(seconds))
        rows = self._ranks.size * min(rows_of(setting, self._ranks.size), 1)
        dataset = context.dataset(setting.data)
        windows = batch(dataset.validation, 0, 0, rows, setting.data.seq_len)[:, :-1]
        tokens = torch.from_numpy(windows).to(context.device)
        replica: Any = trainer.replicas
        with replica.evaluating(), torch.no_grad():
            _, seconds = timed(lambda: replica.reader()(tokens), context.device)
        return messages.Timed(tokens.numel(), self._slowest(seconds))

    def _slowest(self, seconds: float) -> float:
        return float(max(self._ranks.of_all(seconds)))


def _turns(context: WorkerContext, ranks: Ranks) -> _Turns:
    """Return the arms that this worker times, which it keeps."""
    there: _Turns | None = getattr(context, "turns_together", None)
    if there is None:
        there = _Turns(context, ranks)
        context.turns_together = there  # type: ignore[attr-defined]
    return there
