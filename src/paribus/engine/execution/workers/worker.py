"""A worker process: takes tasks on standard input, and answers them on standard output.

Both ways are lines of JSON (`messages.py`), so a study runs the same from a command line, a script
or a notebook, and a worker that dies takes nothing with it. When the input ends in the middle of a
task (whoever asked is gone), or on SIGTERM, the worker leaves at once; in training it finishes its
step and writes a checkpoint first. What it does for each task is in `do`.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from paribus.engine.check import check_arm, repeat_steps
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.execution.evaluate import answer_tasks
from paribus.engine.execution.throughput import time_in_turn
from paribus.engine.execution.trial.endpoints import endpoint_metrics
from paribus.engine.execution.trial.heldout_part import evaluate_heldout_part
from paribus.engine.execution.trial.record import finite
from paribus.engine.execution.trial.trial import StackTask, run_stack
from paribus.engine.execution.workers import messages
from paribus.engine.execution.workers.lifetime import Leaving, Left, leave
from paribus.engine.execution.workers.messages import (
    ArmTask,
    Failed,
    Hello,
    Refused,
    Task,
    decode,
    encode,
)
from paribus.engine.execution.workers.ranks import devices_per_trial, joined, rank_device
from paribus.engine.machine.clock import step_time
from paribus.engine.machine.environment import (
    count_devices,
    machine_failure,
    native_precision,
    prepare,
)
from paribus.engine.machine.memory import free_unused, largest_stack
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.study import parse_study

if TYPE_CHECKING:
    import torch

    from paribus.engine.training.ranks import Ranks


def main(first: str = "") -> int:
    """Work until the input ends; returns the exit code of the process.

    `first` is the first line of the input where somebody has read it.
    """
    # Whatever a library prints must not end up among the lines of the protocol.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):  # nor end the worker, in whatever letters
        sys.stdout.reconfigure(errors="backslashreplace")

    def tell(message: object) -> None:
        channel.write(encode(message))
        channel.flush()

    for name in ("SIGINT", "SIGUSR2"):  # the one who started us decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    leaving = Leaving()
    leaving.listen()
    try:
        _work(tell, leaving, first)
    except Left:
        return 0
    except ParibusError as error:
        tell(Refused(str(error)))
        return 2
    except BrokenPipeError:
        return 1
    except Exception as error:
        if failure := machine_failure(error):
            tell(Refused(failure))
            return 1
        tell(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        return 1
    return 0


def _work(tell: Callable[[object], None], leaving: Leaving, first: str) -> None:
    hello = decode(first or sys.stdin.readline())
    assert isinstance(hello, Hello)
    context = WorkerContext(hello, tell, leaving)
    tell(context.ready)
    tasks = tasks_of(leaving)
    while (task := tasks.get()) is not None:
        free_unused(context.device)  # other processes may need what the last task has left
        answer = do(context, task)
        if answer is not None:
            tell(answer)


def tasks_of(leaving: Leaving) -> SimpleQueue[Task[Any] | None]:
    """Return tasks as they arrive, then None. An end of input asks the one under way to stop."""
    queue: SimpleQueue[Task[Any] | None] = SimpleQueue()

    def read() -> None:
        try:
            for line in sys.stdin:
                queue.put(decode(line))
            leaving.request()
        except ValueError:  # whoever asked died in the middle of a line
            leaving.request()
        finally:
            queue.put(None)

    threading.Thread(target=read, daemon=True).start()
    return queue


class WorkerContext:
    """A worker's study, its device, and what it has loaded so far.

    Attributes:
        hello: the first message.
        study: what it works on; another one once it has adopted it.
        results: the folder that it writes to, while the run that started it holds it.
        device: what it computes on.
        graphs: whether a GPU's steps are recorded and replayed.
        checkpoint_seconds: how often a stack is saved.
        tell: says a message.
        leaving: whether it was asked to leave.
    """

    def __init__(
        self,
        hello: Hello,
        tell: Callable[[object], None],
        leaving: Leaving,
        device: torch.device | None = None,
    ) -> None:
        self.hello = hello
        self.study = parse_study(hello.study, folder=Path(hello.folder))
        self.results = ResultsFolder(Path(hello.results))
        self.device = device or rank_device(hello, devices_per_trial(self.study), 0)
        prepare(self.device)
        self.graphs = not hello.eager
        self.checkpoint_seconds = hello.checkpoint_seconds
        self.tell = tell
        self.leaving = leaving
        self._datasets: dict[Data, Dataset] = {}

    @property
    def ready(self) -> messages.Ready:
        """Return what it says first."""
        return messages.Ready(
            self.device.type, count_devices(self.device), native_precision(self.device)
        )

    def dataset(self, data: Data) -> Dataset:
        """Return the text of `data`, which is read once."""
        if data not in self._datasets:
            self._datasets[data] = load_dataset(data, self.study.folder)
        return self._datasets[data]


def do(context: WorkerContext, task: Task[messages.Answer]) -> messages.Answer:
    """Do a task, and return its answer; None where it has none."""
    answer: Any = None
    match task:
        case messages.Adopt():
            context.study = parse_study(task.study, folder=context.study.folder)
        case messages.Declare():
            found = endpoint_metrics(context.study)
            answer = messages.Metrics({name: metric.about for name, metric in found.items()})
        case messages.TimeInTurn():
            answer = _time_in_turn(context, task)
        case ArmTask():
            answer = _do_on_text(context, task)
    return answer  # none of `Rest`: between tasks memory is given back, whatever is asked


def _time_in_turn(context: WorkerContext, task: messages.TimeInTurn) -> messages.Finished:
    study = context.study
    datasets = {arm: context.dataset(study.setting(arm).data) for arm in study.arms}
    about = (study, context.results, datasets, context.device, task.trials)
    time_in_turn(*about, graphs=context.graphs)
    return messages.Finished()


def _do_on_text(context: WorkerContext, task: ArmTask[Any]) -> object:
    """Do a task that needs the text of its arm."""
    study, results, device, graphs = context.study, context.results, context.device, context.graphs
    dataset = context.dataset(study.setting(task.arm).data)
    match task:
        case messages.Check(arm, stack, by_shapes):
            how = {"graphs": graphs, "by_shapes": by_shapes}
            return messages.Findings(check_arm(study, arm, dataset, device, stack, **how))
        case messages.MeasureMemory(arm, stack, workers):
            return largest_stack(study, arm, dataset, device, stack, workers, graphs=graphs)
        case messages.MeasureStep(arm, stack):
            return step_time(study, arm, dataset, device, stack)
        case messages.Train():
            _train(context, task, dataset)
            return messages.Finished()
        case messages.EvaluateHeldoutPart(arm, seed):
            evaluate_heldout_part(study, results, dataset, device, (arm, seed))
            return messages.Finished()
        case messages.AnswerTasks():
            answer_tasks(study, results, dataset, device, task)
            return messages.Finished()
        case messages.TrainAgain() if devices_per_trial(study) > 1:
            # The order in which gradients are added depends on the number of devices.
            return messages.Comparison(
                elsewhere=["way of training: one trial over several devices"]
            )
        case messages.TrainAgain(arm, seed, steps):
            trial = results.trial(arm, seed)
            again = repeat_steps(study, trial, dataset, device, steps, graphs=graphs)
            return messages.Comparison(*again)
    raise ValueError(f"nobody does {task}")


def _train(context: WorkerContext, task: messages.Train, dataset: Dataset) -> None:
    """Train the trials of a task; over several devices, as rank 0 of the processes that it starts.

    Raises Left if the worker was asked to leave before the end.
    """
    size = devices_per_trial(context.study)
    if size == 1:
        train(context, task, dataset)
        return
    hello = replace(context.hello, study=context.study.model_dump(mode="json"))
    with joined(hello, task, size, context.device, context.tell) as ranks:
        train(context, task, dataset, ranks)


def train(
    context: WorkerContext, task: messages.Train, dataset: Dataset, ranks: Ranks | None = None
) -> None:
    """Train the trials of a task, or with `ranks` this rank's rows of its only trial."""
    stack = StackTask(
        context.study,
        task.trials,
        context.results,
        context.device,
        context.checkpoint_seconds,
        context.graphs,
        ranks,
    )
    tell, trials = context.tell, task.trials
    if not run_stack(
        stack,
        dataset,
        on_progress=lambda t, losses: tell(messages.Trained(trials, t, finite(losses))),
        on_resume=lambda t, words: tell(messages.Resumed(trials, t, words)),
        leaving=context.leaving,
    ):
        raise Left


if __name__ == "__main__":
    leave(main())
