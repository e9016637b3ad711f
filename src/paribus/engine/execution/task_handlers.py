"""What a worker does for each task: a table from the task's class to a function, one below another.

A function is given the worker's place (`Here`) and its task, and returns the task's answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.execution import messages
from paribus.engine.execution.answer import answer_tasks
from paribus.engine.execution.checks.dry_run import dry_run
from paribus.engine.execution.checks.repeat import repeat
from paribus.engine.execution.checks.retrain import train_again
from paribus.engine.execution.endpoints import endpoint_metrics
from paribus.engine.execution.leaving import Leaving, Left
from paribus.engine.execution.messages import ArmTask, Task
from paribus.engine.execution.record import finite
from paribus.engine.execution.sealed_test import evaluate_test
from paribus.engine.execution.throughput import Turns
from paribus.engine.execution.trial import StackTask, run_stack
from paribus.engine.machine.capacity import largest_stack
from paribus.engine.machine.environment import (
    choose_device,
    count_devices,
    native_precision,
    prepare,
)
from paribus.engine.machine.measurements import Fit, ModelSize, StackTimes, StepCost
from paribus.engine.machine.speed import bench_stack, measure, model_size
from paribus.files import fence
from paribus.results import ResultsFolder
from paribus.study import Data, parse_study
from paribus.study.importing import same_settings

T = TypeVar("T", bound=Task[Any])


class Here:
    """Where a worker is: its study, its device, and what it has loaded so far.

    Attributes:
        study: what it works on; another one once it has adopted it.
        results: the folder that it writes to, while the run that started it holds it.
        device: what it computes on.
        graphs: whether a GPU's steps are recorded and replayed.
        checkpoint_seconds: how often a stack is saved.
        tell: says a message.
        leaving: whether it was asked to leave.
    """

    def __init__(
        self, hello: messages.Hello, tell: Callable[[object], None], leaving: Leaving
    ) -> None:
        self.study = parse_study(hello.study, folder=Path(hello.folder))
        self.results = ResultsFolder(Path(hello.results))
        if run := hello.run:
            fence(self.results.path, lambda: self.results.is_held_by(run))
        self.device = choose_device(hello.device, hello.number)
        prepare(self.device)
        self.graphs = not hello.eager
        self.checkpoint_seconds = hello.checkpoint_seconds
        self.tell = tell
        self.leaving = leaving
        self._datasets: dict[Data, Dataset] = {}

    @property
    def ready(self) -> messages.Ready:
        """What it says first."""
        return messages.Ready(
            self.device.type, count_devices(self.device), native_precision(self.device)
        )

    @cached_property
    def turns(self) -> Turns:
        """The arms that it times in turn."""
        return Turns(self.results, self.dataset, self.device, graphs=self.graphs)

    def dataset(self, data: Data) -> Dataset:
        """The text of `data`, read once.

        Raises ParibusError where own code that reads it changes how all of a process computes.
        """
        if data not in self._datasets:
            with same_settings(f"reading {', '.join(data.own.values())}"):
                self._datasets[data] = load_dataset(data, self.study.folder)
        return self._datasets[data]

    def dataset_of(self, task: ArmTask[Any]) -> Dataset:
        """The text of a task's arm."""
        return self.dataset(self.study.setting(task.arm).data)


DUTIES: dict[type[Task[Any]], Callable[[Here, Any], Any]] = {}


def duty(
    task: type[T],
) -> Callable[[Callable[[Here, T], messages.Answer]], Callable[[Here, T], messages.Answer]]:
    """Enter a function in the table."""

    def enter(function: Callable[[Here, T], Any]) -> Callable[[Here, T], Any]:
        DUTIES[task] = function
        return function

    return enter


def do(here: Here, task: Task[messages.Answer]) -> messages.Answer:
    """Do a task, and return its answer; None where it has none."""
    return DUTIES[type(task)](here, task)


@duty(messages.Rest)
def _rest(here: Here, task: messages.Rest) -> None:
    """Between tasks a worker gives back what it does not use, whatever it is asked."""


@duty(messages.Adopt)
def _adopt(here: Here, task: messages.Adopt) -> None:
    here.study = parse_study(task.study, folder=here.study.folder)


@duty(messages.Declare)
def _declare(here: Here, task: messages.Declare) -> messages.Metrics:
    found = endpoint_metrics(here.study)
    return messages.Metrics({name: metric.about for name, metric in found.items()})


@duty(messages.Check)
def _check(here: Here, task: messages.Check) -> messages.Checked:
    dataset = here.dataset_of(task)
    return messages.Checked(
        dry_run(
            here.study,
            task.arm,
            dataset,
            here.device,
            task.stack,
            graphs=here.graphs,
            part=task.part,
        )
    )


@duty(messages.MeasureMemory)
def _measure_memory(here: Here, task: messages.MeasureMemory) -> Fit:
    return largest_stack(
        here.study,
        task.arm,
        here.dataset_of(task),
        here.device,
        task.stack,
        task.workers,
        graphs=here.graphs,
    )


@duty(messages.CountModel)
def _count_model(here: Here, task: messages.CountModel) -> ModelSize:
    return model_size(here.study, task.arm, here.dataset_of(task))


@duty(messages.MeasureStep)
def _measure_step(here: Here, task: messages.MeasureStep) -> StepCost:
    return measure(here.study, task.arm, here.dataset_of(task), here.device, task.stack)


@duty(messages.MeasureStack)
def _measure_stack(here: Here, task: messages.MeasureStack) -> StackTimes:
    dataset = here.dataset_of(task)
    return bench_stack(here.study, task.arm, dataset, here.device, task.stack, task.steps)


@duty(messages.Train)
def _train(here: Here, task: messages.Train) -> messages.Finished:
    stack = StackTask(
        here.study, task.trials, here.results, here.device, here.checkpoint_seconds, here.graphs
    )
    if not run_stack(
        stack,
        here.dataset_of(task),
        on_progress=lambda t, losses: here.tell(messages.Trained(task.trials, t, finite(losses))),
        on_resume=lambda t, words: here.tell(messages.Resumed(task.trials, t, words)),
        leaving=here.leaving,
    ):
        raise Left
    return messages.Finished()


@duty(messages.EvaluateTest)
def _evaluate_test(here: Here, task: messages.EvaluateTest) -> messages.Finished:
    dataset = here.dataset_of(task)
    evaluate_test(here.study, here.results, dataset, here.device, (task.arm, task.seed))
    return messages.Finished()


@duty(messages.AnswerTasks)
def _answer_tasks(here: Here, task: messages.AnswerTasks) -> messages.Finished:
    answer_tasks(here.study, here.results, here.dataset_of(task), here.device, task)
    return messages.Finished()


@duty(messages.Repeat)
def _repeat(here: Here, task: messages.Repeat) -> messages.Findings:
    dataset = here.dataset_of(task)
    found = repeat(here.study, here.results, dataset, here.device, task.arm, task.seed)
    return messages.Findings(found)


@duty(messages.TrainAgain)
def _train_again(here: Here, task: messages.TrainAgain) -> messages.Comparison:
    dataset = here.dataset_of(task)
    return train_again(here.study, here.results, dataset, here.device, task, here.graphs)


@duty(messages.Prepare)
def _prepare(here: Here, task: messages.Prepare) -> messages.Prepared:
    return messages.Prepared(here.turns.prepare(here.study, task.arm, task.seed, task.trains))


@duty(messages.TakeTurn)
def _take_turn(here: Here, task: messages.TakeTurn) -> messages.Timed:
    return here.turns.take(task.arm, task.kind)
